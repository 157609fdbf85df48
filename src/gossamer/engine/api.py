"""The engine's contract, free of torch: whatever honours it can serve.

Shapes: V vocabulary, I expert intermediate width, Z expert input width.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError

FinishReason = Literal["stop", "length", "cancelled"]
Logits = NDArray[np.float32]


class EngineError(GossamerError):
    """The engine cannot do what it was asked, or a model produced nonsense."""


class SubmitError(EngineError, ValueError):
    """Token ids or sampling parameters that cannot be served as given."""


class ContextLengthError(SubmitError):
    """Prompt and answer do not fit the context.

    Attributes:
        max_context: Tokens that fit.
        requested: Tokens that prompt and answer would take.
    """

    def __init__(self, *, max_context: int, num_prompt: int, max_tokens: int | None):
        wanted = 1 if max_tokens is None else max_tokens
        self.max_context, self.requested = max_context, num_prompt + wanted
        left = max_context - num_prompt
        fix = f"lower the answer's limit to {left}" if left > 0 else "shorten the conversation"
        super().__init__(
            f"request exceeded model token limit: {max_context} (requested: {self.requested} = {num_prompt} "
            f"prompt + {wanted} answer); {fix}"
        )


class LogitMask(Protocol):
    """Forbids tokens before sampling, e.g. for structured output.

    States are values: `apply` and `advance` never change the one they are given, so that a speculative
    token can be taken back by keeping the older state.
    """

    def start(self) -> Any:
        """The state before the first generated token."""
        ...

    def apply(self, state: Any, logits: Logits) -> Logits:
        """Logits [V] with forbidden tokens at -inf; the input stays as it was."""
        ...

    def advance(self, state: Any, token_id: int) -> Any:
        """The state after ``token_id`` was generated."""
        ...


@dataclass(frozen=True)
class BanTokens:
    """A `LogitMask` that forbids the same tokens at every step."""

    token_ids: frozenset[int]

    def start(self) -> None:
        """No state is needed."""

    def apply(self, state: None, logits: Logits) -> Logits:
        """See `LogitMask.apply`."""
        masked = logits.copy()
        masked[list(self.token_ids)] = -np.inf
        return masked

    def advance(self, state: None, token_id: int) -> None:
        """No state is needed."""


@dataclass(frozen=True, kw_only=True)
class PackedExpert:
    """One routed expert as stored: MXFP4 codes [rows, columns/2] and E8M0 scales [rows, columns/32], uint8.

    w1 and w3 are [I, Z], w2 is [Z, I].
    """

    w1: NDArray[np.uint8]
    w1_scale: NDArray[np.uint8]
    w3: NDArray[np.uint8]
    w3_scale: NDArray[np.uint8]
    w2: NDArray[np.uint8]
    w2_scale: NDArray[np.uint8]


class ExpertSource(Protocol):
    """Where routed experts come from: resident, mapped or streamed."""

    def get(self, layer: int, expert: int) -> PackedExpert:
        """The packed weights of one expert of one 0-based layer."""
        ...


DEFAULT_MAX_TOKENS = 131_072
"""As the model's public API has it."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop.

    Raises:
        SubmitError: naming the value that cannot be used.
    """

    max_tokens: int | None = None
    """None: `DEFAULT_MAX_TOKENS`, or what is left of the context where that is less."""
    temperature: float = 1.0
    """0 always takes the likeliest token, the lower id of equals."""
    top_p: float = 1.0
    seed: int | None = None
    """None: the engine's own seed, or fresh entropy where it has none."""
    stop_token_ids: frozenset[int] = frozenset()
    logit_mask: LogitMask | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled with."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise SubmitError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise SubmitError(f"temperature must be a finite number from 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise SubmitError(f"top_p must be above 0 and at most 1, got {self.top_p}")


@dataclass(frozen=True, kw_only=True)
class TokenEvent:
    """One generated token.  The last event of a sequence carries the finish reason.

    ``token_id`` is None only in a cancelled sequence's last event.  ``logprob`` is the natural logarithm
    of the token's probability at temperature 1, after the mask.
    """

    token_id: int | None
    index: int
    finish_reason: FinishReason | None = None
    logprob: float = 0.0


class Engine(Protocol):
    """Generates tokens."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may take together."""
        ...

    def submit(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncIterator[TokenEvent]:
        """Continue ``token_ids``.

        Closing the iterator, or cancelling the task that waits for it, ends the work within one token;
        a sequence that still waits for its turn leaves the queue.

        Raises:
            SubmitError: at the call, before anything runs.
        """
        ...

    async def close(self) -> None:
        """End the running sequence with ``cancelled`` and release what is held."""
        ...
