"""One request: what was asked, where its state lives, how far it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from gossamer.engine.api import (
    DEFAULT_MAX_TOKENS,
    ContextLengthError,
    Embeddings,
    FinishReason,
    RequestOptions,
    SamplingParams,
    SubmitError,
)
from gossamer.engine.block_hash import BlockHasher
from gossamer.engine.sampler import Sampler

DEADLINE: FinishReason = "deadline"
"""How a request ends whose deadline has passed."""


class RequestState(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    """In the queue for the first time."""
    RUNNING = "running"
    """Has a slot and blocks; reads its prompt or generates."""
    PREEMPTED = "preempted"
    """Back in the queue: others needed its memory.  Its tokens and its sampler are kept."""
    FINISHED = "finished"


@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """A request in the engine; only its scheduler and its core change it.

    Attributes:
        id: Counts up with submission.
        params: How to sample.
        options: How it stands among others.
        num_prompt: Tokens of the prompt.
        limit: Tokens that may be generated.
        sampler: Its random stream; lives as long as the request, so that no token is drawn twice.
        hasher: Names of its blocks.
        arrival_s: Clock at submission.
        token_ids: Prompt and generated tokens.
        embeddings: What some tokens of the prompt have instead of their own.
        num_computed: Tokens that slot and blocks hold.
        num_charged: Tokens that its fairness key has paid for.
        slot: None while it waits.
        blocks: Its block table; empty while it waits.
        cached_tokens: Prompt tokens found in the prefix cache at the first admission; None before it.
        admitted_s: Clock at the first admission.
        first_token_s: Clock at the first token.
        last_token_s: Clock at the latest token.
    """

    id: int
    params: SamplingParams
    options: RequestOptions
    num_prompt: int
    limit: int
    sampler: Sampler
    hasher: BlockHasher
    arrival_s: float
    token_ids: list[int]
    embeddings: tuple[Embeddings, ...] = ()
    state: RequestState = RequestState.WAITING
    num_computed: int = 0
    num_charged: int = 0
    slot: int | None = None
    blocks: list[int] = field(default_factory=list)
    cached_tokens: int | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None

    @property
    def num_generated(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.num_prompt

    @property
    def num_pending(self) -> int:
        """Tokens to compute before the next one can be sampled; 1 while it generates."""
        return len(self.token_ids) - self.num_computed

    @property
    def deadline_s(self) -> float:
        """Clock at which it is ended; infinity without a deadline."""
        return math.inf if self.options.deadline_s is None else self.arrival_s + self.options.deadline_s

    def embedded(self, start: int, end: int) -> list[tuple[int, NDArray[np.float32]]]:
        """Of its tokens start .. end - 1: (place among them, rows) of those with embeddings of their own."""
        return [
            (max(part.start - start, 0), part.rows[max(start - part.start, 0) : end - part.start])
            for part in self.embeddings
            if part.start < end and part.end > start
        ]

    def finish_reason(self) -> FinishReason | None:
        """Why its latest generated token is the last, or None."""
        return finish_reason(self.token_ids[-1], self.num_generated, self.limit, self.params)


def finish_reason(
    token_id: int, num_generated: int, limit: int, params: SamplingParams
) -> FinishReason | None:
    """Why ``token_id``, the ``num_generated``-th of at most ``limit``, is the last; None if it is not."""
    if token_id in params.stop_token_ids:
        return "stop"
    return "length" if num_generated >= limit else None


def answer_limit(
    token_ids: Sequence[int], params: SamplingParams, *, vocab_size: int, max_context: int
) -> int:
    """Tokens that may be generated after a prompt.

    Raises:
        SubmitError: an empty prompt, a token id outside the vocabulary.
        ContextLengthError: prompt and answer do not fit ``max_context``.
    """
    if not len(token_ids):
        raise SubmitError("the prompt is empty; at least one token is needed")
    outside = next((i for i in token_ids if not 0 <= i < vocab_size), None)
    if outside is not None:
        raise SubmitError(f"token id {outside} is outside 0..{vocab_size - 1}")
    params.check_vocab(vocab_size)
    if len(token_ids) + (params.max_tokens or 1) > max_context:
        raise ContextLengthError(
            max_context=max_context, num_prompt=len(token_ids), max_tokens=params.max_tokens
        )
    return min(params.max_tokens or DEFAULT_MAX_TOKENS, max_context - len(token_ids))
