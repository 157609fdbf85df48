"""Every record type by kind, and the example file of each."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from gossamer.records.assignment import Assignment
from gossamer.records.benchmark import Benchmark
from gossamer.records.capture import Capture
from gossamer.records.envelope import Record
from gossamer.records.eval_result import EvalResult
from gossamer.records.expert_load import ExpertLoad
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
    "expert_load": ExpertLoad,
    "plan": Plan,
    "prediction": Prediction,
}

LOGS: Final = frozenset({"request_log", "capture", "assignment"})
"""Kinds that are written one per line."""


def example_name(kind: str) -> str:
    """The file name of a kind's example."""
    return f"{kind}.jsonl" if kind in LOGS else f"{kind}.json"


def example(kind: str) -> bytes:
    """The example file of a kind that ships with the package: JSON, or JSON lines for `LOGS`."""
    return (files("gossamer.records") / "examples" / example_name(kind)).read_bytes()
