"""The engine's contract, free of torch: whatever honours it can serve.

Shapes: V vocabulary, I expert intermediate width, Z expert input width.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError

FinishReason = Literal["stop", "length", "cancelled", "deadline"]
"""``deadline``: the time that the request was given ran out."""
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


@runtime_checkable
class LookaheadMask(LogitMask, Protocol):
    """A `LogitMask` that looks at single tokens again where looking at all of them would take too long."""

    def allows(self, state: Any, token_id: int) -> bool:
        """Whether a token that `apply` left in may be taken; asked of chosen tokens only."""
        ...

    def narrow(self, state: Any, logits: Logits) -> Logits:
        """Logits [V] with only such tokens left in as `allows` allows; asked after many refusals."""
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
        masked[self._index] = -np.inf
        return masked

    def advance(self, state: None, token_id: int) -> None:
        """No state is needed."""

    @cached_property
    def _index(self) -> NDArray[np.intp]:
        # Made once: the same ids are struck out at every step.
        return np.fromiter(self.token_ids, dtype=np.intp, count=len(self.token_ids))


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
MAX_LOGPROBS = 20
MAX_PRIORITY = 100
"""Priorities are from -100 to 100."""
"""Most alternatives that are reported per token, as in OpenAI's API."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop; `gossamer.engine.sampler` has the order of the steps.

    Raises:
        SubmitError: naming the value that cannot be used, and its range.
    """

    max_tokens: int | None = None
    """None: `DEFAULT_MAX_TOKENS`, or what is left of the context where that is less."""
    min_tokens: int = 0
    """Stop tokens are masked until this many tokens have been generated."""
    ignore_eos: bool = False
    """Stop tokens are masked throughout, so that only the limit ends the sequence."""
    temperature: float = 1.0
    """0 always takes the likeliest token, the lower id of equals."""
    top_k: int | None = None
    """Only the k likeliest tokens, lower ids first among equals; None: all."""
    top_p: float = 1.0
    """Only the fewest likeliest tokens that reach this share together, lower ids first among equals."""
    min_p: float = 0.0
    """Only tokens at least this many times as likely as the likeliest."""
    presence_penalty: float = 0.0
    """Taken once from the logit of every token that was generated before."""
    frequency_penalty: float = 0.0
    """Taken from a token's logit once for every time it was generated before."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in the prompt or generated before."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these ids; a masked token stays masked."""
    logprobs: int | None = None
    """Alternatives to report with each token's log-probability; None reports neither."""
    seed: int | None = None
    """None: the engine's own seed, or fresh entropy where it has none."""
    stop_token_ids: frozenset[int] = frozenset()
    logit_mask: LogitMask | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled with."""
        if self.max_tokens is not None:
            _check_integer("max_tokens", self.max_tokens, 1)
        _check_integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise SubmitError(
                f"min_tokens must be at most max_tokens, got {self.min_tokens} and {self.max_tokens}"
            )
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise SubmitError(f"temperature must be a finite number from 0, got {self.temperature}")
        if self.top_k is not None:
            _check_integer("top_k", self.top_k, 1)
        if not 0 < self.top_p <= 1:
            raise SubmitError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        _check_number("min_p", self.min_p, 0, 1)
        _check_number("presence_penalty", self.presence_penalty, -2, 2)
        _check_number("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 100)
        for token_id, bias in self.logit_bias.items():
            _check_integer("an id in logit_bias", token_id, 0)
            _check_number(f"logit_bias[{token_id}]", bias, -100, 100)
        # A copy, so that the caller's later changes do not reach a running sequence.
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))
        if self.logprobs is not None:
            _check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)

    def check_vocab(self, vocab_size: int) -> None:
        """Refuse ids that the model does not have; engines call this in `Engine.submit`.

        Raises:
            SubmitError: a biased or stop token outside 0..``vocab_size`` - 1.
        """
        for name, token_ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            outside = next((i for i in token_ids if not 0 <= i < vocab_size), None)
            if outside is not None:
                raise SubmitError(f"{name} holds token id {outside}, outside 0..{vocab_size - 1}")


def _check_integer(name: str, value: int, low: int, high: int | None = None) -> None:
    span = f"at least {low}" if high is None else f"from {low} to {high}"
    fits = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not fits or value < low or (high is not None and value > high):
        raise SubmitError(f"{name} must be an integer {span}, got {value!r:.80}")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not low <= value <= high:
        raise SubmitError(f"{name} must be a number from {low:g} to {high:g}, got {value!r:.80}")


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """How a request stands among others.

    Attributes:
        priority: The higher goes first and is preempted last.
        deadline_s: Seconds from submission after which it is ended; None never.
        fairness_key: Requests of one key share its part of the work, e.g. a tenant's name.
        cache_salt: Prefixes are shared with requests of the same salt only.

    Raises:
        SubmitError: naming the value that cannot be used.
    """

    priority: int = 0
    deadline_s: float | None = None
    fairness_key: str = ""
    cache_salt: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be scheduled."""
        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise SubmitError(f"priority must be from {-MAX_PRIORITY} to {MAX_PRIORITY}, got {self.priority}")
        if self.deadline_s is not None and not (math.isfinite(self.deadline_s) and self.deadline_s > 0):
            raise SubmitError(f"deadline_s must be a finite number above 0, got {self.deadline_s}")


NO_OPTIONS = RequestOptions()


@dataclass(frozen=True, kw_only=True)
class TokenEvent:
    """One generated token.  The last event of a sequence carries the finish reason.

    ``token_id`` is None only in the last event of a sequence that was cut off (``cancelled`` or
    ``deadline``).  ``logprob`` and ``top_logprobs`` are those of `Choice`.
    """

    token_id: int | None
    index: int
    finish_reason: FinishReason | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Choice:
    """The token that was chosen for one position.

    Log-probabilities are natural logarithms of what the model itself said: at temperature 1, after the
    masks, before bias, penalties and truncation.

    Attributes:
        token_id: The token.
        logprob: Its log-probability, None unless `SamplingParams.logprobs` asks for it.
        top_logprobs: The likeliest tokens (id, log-probability), likeliest first, lower ids first among
            equals; as many as asked for, fewer where fewer are allowed.
    """

    token_id: int
    _: KW_ONLY
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Embeddings:
    """Rows that stand in for the embeddings of neighbouring prompt tokens, such as an image's.

    Attributes:
        start: Position of the first token they stand in for.
        rows: [N, D] float32, one for each token from ``start`` on.
        digest: Names the rows: equal digests are taken to mean equal rows, so it must be cryptographic.
    """

    start: int
    rows: NDArray[np.float32]
    digest: bytes

    @property
    def end(self) -> int:
        """Position after the last token."""
        return self.start + len(self.rows)


MIN_DIGEST_BYTES = 16


def check_embeddings(embeddings: Sequence[Embeddings], *, num_prompt: int, hidden_size: int) -> None:
    """Refuse rows that do not fit the prompt.

    Raises:
        SubmitError: another width, rows outside the prompt, rows that overlap or are out of order, a digest
            too short to be one, or a value that is no number.
    """
    last = 0
    for part in embeddings:
        if part.rows.ndim != 2 or part.rows.shape[1] != hidden_size or part.rows.dtype != np.float32:
            raise SubmitError(
                f"embeddings must be [tokens, {hidden_size}] float32, got {part.rows.dtype} {part.rows.shape}"
            )
        if part.start < last or not len(part.rows) or part.end > num_prompt:
            raise SubmitError(
                f"embeddings of positions {part.start}..{part.end - 1} are empty, overlap others before "
                f"{last}, or lie outside a prompt of {num_prompt} tokens"
            )
        if len(part.digest) < MIN_DIGEST_BYTES:
            raise SubmitError(f"a digest needs {MIN_DIGEST_BYTES} bytes or more, got {len(part.digest)}")
        if not np.isfinite(part.rows).all():
            raise SubmitError(f"embeddings from position {part.start} on hold values that are not finite")
        last = part.end


class Engine(Protocol):
    """Generates tokens."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may take together."""
        ...

    def submit(
        self,
        token_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = NO_OPTIONS,
        *,
        embeddings: Sequence[Embeddings] = (),
    ) -> AsyncIterator[TokenEvent]:
        """Continue ``token_ids``, some of which may have embeddings of their own, in their order.

        ``options`` say how the request stands among others.

        Closing the iterator, or cancelling the task that waits for it, ends the work within one token;
        a sequence that still waits for its turn leaves the queue.

        Raises:
            SubmitError: at the call, before anything runs.
        """
        ...

    async def close(self) -> None:
        """End the running sequence with ``cancelled`` and release what is held."""
        ...
