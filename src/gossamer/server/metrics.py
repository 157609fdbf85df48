"""What a serving engine tells Prometheus, under the names that vLLM uses with ``gossamer:`` in front.

The engine keeps its numbers without knowing who asks: the protocols here are all that is asked of it, and
`gossamer.engine` has no import of this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.gateway.app import Page
from gossamer.gateway.service import FrontCounts
from gossamer.server.exposition import CONTENT_TYPE, Buckets, Kind, MetricFamily, Sample, render

PATH = "/metrics"
ExpertLoads = Callable[[], NDArray[np.int64]]
"""Tokens that each routed expert of each layer has worked on since the start, [layers, experts]."""


class HistogramRecord(Protocol):
    """A histogram at one moment; the attributes are those of `gossamer.server.exposition.Buckets`."""

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds of the buckets, inclusive and rising."""
        ...

    @property
    def counts(self) -> Sequence[int]:
        """Values in each bucket alone; one bucket more than there are bounds."""
        ...

    @property
    def total(self) -> float:
        """Sum of all values."""
        ...


class Histogram(Protocol):
    """A histogram that goes on counting."""

    def record(self) -> HistogramRecord:
        """As it is now."""
        ...


class Counts(Protocol):
    """What an engine has done since its start."""

    num_prompt_tokens: int
    """Of the prompts that were admitted, cached tokens included."""
    num_generated_tokens: int
    num_cached_tokens: int
    """Prompt tokens found in the prefix cache."""
    num_preemptions: int

    @property
    def finished(self) -> Mapping[str, int]:
        """Requests by what ended them."""
        ...

    @property
    def ttft_s(self) -> Histogram:
        """Submission to first token."""
        ...

    @property
    def inter_token_s(self) -> Histogram:
        """Token to next token of the same request."""
        ...

    @property
    def tpot_s(self) -> Histogram:
        """Mean of that over a request, per finished request."""
        ...

    @property
    def e2e_s(self) -> Histogram:
        """Submission to end."""
        ...

    @property
    def queue_s(self) -> Histogram:
        """Submission to first admission."""
        ...

    @property
    def batch_sequences(self) -> Histogram:
        """Sequences of a step."""
        ...

    @property
    def batch_tokens(self) -> Histogram:
        """Tokens of a step."""
        ...


class State(Protocol):
    """How an engine stands at one moment."""

    @property
    def num_running(self) -> int:
        """Requests being worked on."""
        ...

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def num_blocks(self) -> int:
        """Cache blocks there are."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Cache blocks that nobody holds."""
        ...


class MeasuredEngine(Protocol):
    """An engine that knows what it does; both are read from another thread than the one that writes."""

    @property
    def metrics(self) -> Counts:
        """Counted since its start."""
        ...

    @property
    def stats(self) -> State:
        """After its latest step."""
        ...


def resident_bytes() -> int | None:
    """Memory that this process holds; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class ServingMetrics:
    """The metrics of one served model.

    Attributes:
        model_name: The id it is served under; every sample carries it as a label.
        engine: Asked at each scrape.
        expert_loads: Asked at each scrape; None where nobody counts.
        front: Asked at each scrape for what the HTTP front has done; None without one.
        resident_bytes: The same for the memory that the process holds; None where that is unknown.
    """

    model_name: str
    engine: MeasuredEngine
    expert_loads: ExpertLoads | None = None
    front: Callable[[], FrontCounts] | None = None
    resident_bytes: Callable[[], int | None] = resident_bytes

    def page(self) -> Page:
        """What ``GET /metrics`` answers."""
        return Page(content_type=CONTENT_TYPE, write=lambda: render(self.families()))

    def families(self) -> list[MetricFamily]:
        """All families as they are now."""
        counts, state = self.engine.metrics, self.engine.stats
        families = [*self._gauges(state), *self._counters(counts), *self._histograms(counts)]
        if self.expert_loads is not None:
            families.append(self._loads(self.expert_loads()))
        if self.front is not None:
            families += self._front(self.front())
        resident = self.resident_bytes()
        if resident is not None:
            samples = [Sample(resident)]
            text = "Memory that the process holds."
            families.append(
                MetricFamily("process_resident_memory_bytes", help=text, kind="gauge", samples=samples)
            )
        return families

    def _gauges(self, state: State) -> list[MetricFamily]:
        used = 1 - state.num_free_blocks / state.num_blocks if state.num_blocks else 0.0
        return [
            self._one("num_requests_running", "gauge", "Requests being worked on.", state.num_running),
            self._one("num_requests_waiting", "gauge", "Requests in the queue.", state.num_waiting),
            self._one("kv_cache_usage_perc", "gauge", "Share of cache blocks in use; 1 is all.", used),
        ]

    def _counters(self, counts: Counts) -> list[MetricFamily]:
        rows = [
            ("prompt_tokens", "Prompt tokens of admitted requests.", counts.num_prompt_tokens),
            ("generation_tokens", "Tokens generated.", counts.num_generated_tokens),
            # An admission looks its whole prompt up.
            ("prefix_cache_queries", "Tokens looked up in the prefix cache.", counts.num_prompt_tokens),
            ("prefix_cache_hits", "Tokens found in the prefix cache.", counts.num_cached_tokens),
            ("num_preemptions", "Requests sent back to the queue.", counts.num_preemptions),
        ]
        finished = [Sample(n, self._labels(finished_reason=why)) for why, n in counts.finished.items()]
        return [
            *(self._one(f"{name}_total", "counter", text, value) for name, text, value in rows),
            self._family("request_success_total", "counter", "Requests by what ended them.", finished),
        ]

    def _histograms(self, counts: Counts) -> list[MetricFamily]:
        rows = [
            ("time_to_first_token_seconds", "Submission to first token.", counts.ttft_s),
            ("inter_token_latency_seconds", "Token to next token.", counts.inter_token_s),
            (
                "request_time_per_output_token_seconds",
                "Mean time per token after the first, of finished requests.",
                counts.tpot_s,
            ),
            ("e2e_request_latency_seconds", "Submission to end of finished requests.", counts.e2e_s),
            ("request_queue_time_seconds", "Submission to first admission.", counts.queue_s),
            ("iteration_tokens_total", "Tokens of a step.", counts.batch_tokens),
            ("iteration_requests", "Requests of a step.", counts.batch_sequences),
        ]
        return [self._one(name, "histogram", text, _buckets(values)) for name, text, values in rows]

    def _loads(self, loads: NDArray[np.int64]) -> MetricFamily:
        samples = [
            Sample(count, self._labels(layer=str(layer), expert=str(expert)))
            for layer, row in enumerate(loads.tolist())
            for expert, count in enumerate(row)
        ]
        text = "Tokens that each routed expert has worked on, by 0-based layer."
        return self._family("expert_load_tokens_total", "counter", text, samples)

    def _front(self, front: FrontCounts) -> list[MetricFamily]:
        # Copies: another thread goes on counting.
        responses = [
            Sample(n, self._labels(handler=route, method=method, status=str(status)))
            for (route, method, status), n in sorted(front.responses.copy().items())
        ]
        errors = [Sample(n, self._labels(code=code)) for code, n in sorted(front.errors.copy().items())]
        return [
            self._family(
                "http_requests_total", "counter", "Requests by route, method and status.", responses
            ),
            self._family("errors_total", "counter", "Requests without a whole answer, by code.", errors),
            self._one(
                "client_retries_total",
                "counter",
                "Requests whose client said that it had tried before.",
                front.client_retries,
            ),
            self._one("http_requests_in_flight", "gauge", "Requests being answered.", front.in_flight),
        ]

    def _one(self, name: str, kind: Kind, text: str, value: float | Buckets) -> MetricFamily:
        return self._family(name, kind, text, [Sample(value, self._labels())])

    def _family(self, name: str, kind: Kind, text: str, samples: Sequence[Sample]) -> MetricFamily:
        return MetricFamily(f"gossamer:{name}", help=text, kind=kind, samples=samples)

    def _labels(self, **labels: str) -> dict[str, str]:
        return {"model_name": self.model_name, **labels}


def _buckets(histogram: Histogram) -> Buckets:
    record = histogram.record()
    return Buckets(record.bounds, counts=record.counts, total=record.total)
