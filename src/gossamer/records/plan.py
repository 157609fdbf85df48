"""A deployment plan: candidates with exact memory, estimated speed and cost, and why others fell."""

from __future__ import annotations

from typing import Literal

from gossamer.records.envelope import Count, Record, Text, Time, Value
from gossamer.records.inventory import Basis
from gossamer.records.prediction import Range


class Layout(Value, frozen=True, kw_only=True):
    """How a model is spread over devices."""

    engine: Text
    engine_version: Text
    num_gpus: Count
    tp: Count = 1
    pp: Count = 1
    ep: Count = 1
    dp: Count = 1
    dcp: Count = 1
    weights: Text
    kv_dtype: Text
    speculation: str | None = None


class MemoryItem(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a device's memory."""

    name: Text
    num_bytes: Count
    basis: Basis
    source: str | None = None


class Cost(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Money, in US dollars, with the price file it rests on."""

    usd_per_hour: Range
    prices: Text
    usd_per_million_input: Range | None = None
    usd_per_million_cached: Range | None = None
    usd_per_million_output: Range | None = None
    usd_per_session: Range | None = None


class Candidate(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One way to run it that fits."""

    id: Text
    gpu: Text
    layout: Layout
    memory: tuple[MemoryItem, ...]
    """Of the fullest rank."""
    usable_bytes: Count
    max_sequences: Count
    max_context: Count
    ttft_ms: Range | None = None
    tpot_ms: Range | None = None
    out_tok_s_total: Range | None = None
    cost: Cost | None = None
    start_s: Range | None = None
    warnings: tuple[str, ...] = ()


class Remedy(Value, frozen=True, kw_only=True):
    """One change that would help a rejected candidate."""

    change: Text
    gained_bytes: Count
    lost_tok_s: float


class Rejected(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One way that does not work."""

    id: Text
    gpu: Text
    layout: Layout
    reason: Text
    rule: Literal["memory", "shape", "unsupported", "slo", "budget"]
    missing_bytes: Count | None = None
    remedies: tuple[Remedy, ...] = ()


class Plan(Record, frozen=True, kw_only=True, tag="gossamer.plan/1", omit_defaults=True):
    """The answer of one planning run."""

    created: Time
    gossamer_version: Text
    model: Text
    workload: dict[str, str | int | float | bool | None]
    candidates: tuple[Candidate, ...]
    """The Pareto set over cost, TTFT, TPOT and throughput, best first."""
    rejected: tuple[Rejected, ...] = ()
    num_considered: Count
    sources: tuple[str, ...] = ()
    """Price, hardware and calibration files with their dates."""
