"""Counts and times of an engine, as plain numbers; how they are exported is somebody else's concern."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from gossamer.engine.request import Request

LATENCY_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
)  # fmt: skip
"""From a token of a tiny model to an hour-long answer of one streamed from disk."""
COUNT_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
"""Sequences or tokens of a step."""


@dataclass(frozen=True, kw_only=True)
class HistogramRecord:
    """A histogram at one moment.

    Attributes:
        bounds: Upper bounds of the buckets, inclusive; one more bucket follows for what is above the last.
        counts: Values in each bucket, len(bounds) + 1 of them.
        total: Sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """Values there were."""
        return sum(self.counts)


class Histogram:
    """Values counted in fixed buckets; one thread adds while another reads.

    Args:
        bounds: Upper bounds, rising.
    """

    def __init__(self, bounds: Sequence[float]):
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def add(self, value: float) -> None:
        """Count one value."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._total += value

    def record(self) -> HistogramRecord:
        """As it is now: buckets and sum of the same values."""
        with self._lock:
            return HistogramRecord(bounds=self._bounds, counts=tuple(self._counts), total=self._total)


@dataclass(kw_only=True)
class Metrics:
    """What an engine has done since its start.  One thread writes, any may read.

    Attributes:
        num_steps: Forward passes.
        num_prompt_tokens: Of all prompts that were admitted, cached ones included.
        num_generated_tokens: Sampled.
        num_cached_tokens: Prompt tokens found in the prefix cache at their request's first admission.
        num_resumed_tokens: Tokens not computed thanks to the prefix cache, those after a preemption included.
        num_preemptions: Requests sent back to the queue.
        num_evictions: Resume points dropped from the prefix cache in memory.
        finished: Requests by what ended them: stop, length, cancelled, deadline, error.
        ttft_s: Submission to first token.
        inter_token_s: Token to next token of the same request.
        tpot_s: Mean of that over a request, per finished request of at least two tokens.
        e2e_s: Submission to end, of requests that ended with stop or length.
        queue_s: Submission to first admission.
        batch_sequences: Sequences of a step.
        batch_tokens: Tokens of a step.
    """

    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    num_cached_tokens: int = 0
    num_resumed_tokens: int = 0
    num_preemptions: int = 0
    num_evictions: int = 0
    finished: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "cancelled", "deadline", "error"), 0)
    )
    ttft_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    inter_token_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    tpot_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    e2e_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    queue_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_BUCKETS_S))
    batch_sequences: Histogram = field(default_factory=lambda: Histogram(COUNT_BUCKETS))
    batch_tokens: Histogram = field(default_factory=lambda: Histogram(COUNT_BUCKETS))

    def step(self, *, num_sequences: int, num_tokens: int) -> None:
        """Count a forward pass."""
        self.num_steps += 1
        self.batch_sequences.add(num_sequences)
        self.batch_tokens.add(num_tokens)

    def admitted(self, request: Request) -> None:
        """Count a request's first admission."""
        assert request.admitted_s is not None
        assert request.cached_tokens is not None
        self.queue_s.add(request.admitted_s - request.arrival_s)
        self.num_prompt_tokens += request.num_prompt
        self.num_cached_tokens += request.cached_tokens

    def token(self, request: Request, now_s: float) -> None:
        """Count a token sampled at ``now_s``, before the request's own times are set."""
        self.num_generated_tokens += 1
        if request.last_token_s is None:
            self.ttft_s.add(now_s - request.arrival_s)
        else:
            self.inter_token_s.add(now_s - request.last_token_s)

    def ended(self, request: Request, why: str, now_s: float) -> None:
        """Count a request's end; ``why`` is a key of ``finished``."""
        self.finished[why] += 1
        if why not in ("stop", "length"):
            return
        self.e2e_s.add(now_s - request.arrival_s)
        if request.num_generated > 1 and request.first_token_s is not None:
            assert request.last_token_s is not None
            span = request.last_token_s - request.first_token_s
            self.tpot_s.add(span / (request.num_generated - 1))
