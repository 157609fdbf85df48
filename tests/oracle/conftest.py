"""Collects every comparison of the oracle tests and prints them as one table, the one in docs/fidelity.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from compare import Row, difference, within
from outside import Outside

ROWS = pytest.StashKey[list[Row]]()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "fidelity.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
WRITE = "GOSSAMER_ORACLE_WRITE"


def pytest_configure(config: pytest.Config) -> None:
    """Start an empty list."""
    config.stash[ROWS] = []


@pytest.fixture(scope="session")
def ask():
    """``ask(environment, script, task, arrays, **options)``: named arrays from an outside implementation."""
    outside = Outside()
    yield outside
    outside.close()


@pytest.fixture
def held(request: pytest.FixtureRequest):
    """``held(ours, theirs, mechanism, quantity, outside, tolerance)``: record the distance, assert it."""
    rows = request.config.stash[ROWS]

    def check(ours, theirs, mechanism: str, quantity: str, outside: str, tolerance: str) -> None:
        found = difference(ours, theirs)
        rows.append(
            Row(
                mechanism=mechanism,
                quantity=quantity,
                outside=outside,
                difference=found,
                tolerance=tolerance,
            )
        )
        assert within(found, tolerance), f"{mechanism}, {quantity}, against {outside}: {found}"

    return check


@pytest.fixture
def record(request: pytest.FixtureRequest):
    """Record a comparison whose assertion is made by the test itself."""
    return request.config.stash[ROWS].append


def table(rows: list[Row]) -> str:
    """Worst figures per mechanism, quantity and outside implementation, in order of appearance."""
    worst: dict[tuple[str, str, str, str], list[tuple[float, float]]] = {}
    for r in rows:
        key = (r.mechanism, r.quantity, r.outside, r.tolerance)
        worst.setdefault(key, []).append((r.difference.max_abs, r.difference.rel_rms))
    lines = [
        "| mechanism | quantity | outside implementation | cases | max abs | rel RMS | tolerance row |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for key, found in worst.items():
        figures = [str(len(found))] + [f"{max(column):.1e}" for column in zip(*found, strict=True)]
        lines.append("| " + " | ".join([*key[:3], *figures, f"`{key[3]}`"]) + " |")
    return "\n".join(lines)


def pytest_terminal_summary(terminalreporter, exitstatus: int, config: pytest.Config) -> None:
    """Print the table; write it into the page when scripts/oracle --write asked and everything passed."""
    rows = config.stash[ROWS]
    if not rows:
        return
    text = table(rows)
    terminalreporter.write_line("")
    terminalreporter.write_line(text)
    if os.environ.get(WRITE) == "1" and exitstatus == 0:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
