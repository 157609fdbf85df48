"""Versioned schemas of every file that one part of the package writes for another, or for people.

| record      | schema                    | file              | unknown fields                          |
|-------------|---------------------------|-------------------|-----------------------------------------|
| Inventory   | gossamer.inventory/1      | one object        | refused                                 |
| Benchmark   | gossamer.benchmark/1      | one object        | refused                                 |
| RequestLog  | gossamer.request_log/1    | one line each     | refused: nothing unlisted is ever logged |
| Capture     | gossamer.capture/1        | one line each     | refused, but kept inside messages and tools |
| Assignment  | gossamer.assignment/1     | one line each     | refused                                 |
| EvalResult  | gossamer.eval_result/1    | one object        | refused                                 |
| Plan        | gossamer.plan/1           | one object        | refused                                 |
| Prediction  | gossamer.prediction/1     | one object        | refused                                 |

A field that changes meaning, goes away or becomes required gives the next version number; a new
optional field does too, because older readers refuse it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from gossamer.records.assignment import Assignment
from gossamer.records.benchmark import Benchmark, BenchmarkRow, Machine
from gossamer.records.capture import Capture
from gossamer.records.envelope import (
    Record,
    RecordError,
    append_lines,
    convert,
    decode,
    encode,
    json_schema,
    read,
    read_lines,
    schema_of,
    write,
)
from gossamer.records.eval_result import EvalResult
from gossamer.records.inventory import Inventory
from gossamer.records.plan import Plan
from gossamer.records.prediction import Prediction
from gossamer.records.request_log import RequestLog

KINDS: Final[dict[str, type[Record]]] = {
    "inventory": Inventory,
    "benchmark": Benchmark,
    "request_log": RequestLog,
    "capture": Capture,
    "assignment": Assignment,
    "eval_result": EvalResult,
    "plan": Plan,
    "prediction": Prediction,
}
"""Every record type by kind."""

LOGS: Final = frozenset({"request_log", "capture", "assignment"})
"""Kinds that are written one per line."""

__all__ = [
    "KINDS",
    "LOGS",
    "Assignment",
    "Benchmark",
    "BenchmarkRow",
    "Capture",
    "EvalResult",
    "Inventory",
    "Machine",
    "Plan",
    "Prediction",
    "Record",
    "RecordError",
    "RequestLog",
    "append_lines",
    "convert",
    "decode",
    "encode",
    "example",
    "json_schema",
    "read",
    "read_lines",
    "schema_of",
    "write",
]


def example(kind: str) -> bytes:
    """The example file of a kind that ships with the package: JSON, or JSON lines for `LOGS`."""
    name = f"{kind}.jsonl" if kind in LOGS else f"{kind}.json"
    return (files("gossamer.records") / "examples" / name).read_bytes()
