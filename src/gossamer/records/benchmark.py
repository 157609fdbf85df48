"""Measured speed against a peer, all rows from one run: `benchmarks/latest.json`."""

from __future__ import annotations

from gossamer.records.envelope import Count, Record, Text, Time, Value


class Machine(Value, frozen=True, kw_only=True, omit_defaults=True):
    """Where the run took place; a figure means nothing without it."""

    cpu: Text
    num_cores: Count
    memory_bytes: Count
    system: Text
    accelerator: str | None = None
    isa: tuple[str, ...] = ()
    """Instruction sets that kernels may use."""


class BenchmarkRow(Value, frozen=True, kw_only=True):
    """One comparison.  ``ratio`` is always written so that higher is better."""

    name: Text
    ours: float
    unit: Text
    conditions: str
    """Shapes, threads, seeds, versions: what someone needs to repeat it."""
    peer: float | None = None
    ratio: float | None = None
    goal: float | None = None
    """The smallest acceptable ratio."""


class Benchmark(Record, frozen=True, kw_only=True, tag="gossamer.benchmark/1"):
    """One run of the benchmarks."""

    created: Time
    gossamer_version: Text
    machine: Machine
    rows: tuple[BenchmarkRow, ...]
    commit: str | None = None

    def failures(self) -> list[str]:
        """Names of rows that miss their goal, or have a goal but no ratio."""
        return [
            row.name
            for row in self.rows
            if row.goal is not None and (row.ratio is None or not row.ratio >= row.goal)
        ]
