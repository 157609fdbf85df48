"""`gossamer inspect --formats`: how much signal each number format keeps, as a table and a plot."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError


class PlotError(GossamerError, OSError):
    """The plot cannot be written where it was asked for."""


def show(*, seed: int, plot: Path | None, json: bool) -> int:
    """Measure, print, and write the plot when asked.

    Raises:
        PlotError: the plot's path cannot be written.
    """
    from gossamer.mx import report

    rows = report.measure(seed=seed)
    if json:
        from json import dumps

        found = {"seed": seed, "basis": "measured", "conditions": report.CONDITIONS}
        print(dumps(found | {"rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(table([asdict(row) for row in rows], seed, report.CONDITIONS))
    if plot is not None:
        try:
            plot.write_text(report.plot_svg(rows), encoding="utf-8")
        except OSError as error:
            raise PlotError(f"cannot write the plot to {plot}: {error.strerror}") from None
    return 0


def table(rows: list[dict[str, Any]], seed: int, conditions: str) -> str:
    """The measured rows with their field names as headings, under what they were measured on."""
    from gossamer.cli.tables import aligned

    names = list(rows[0])
    cells = [tuple(names), *(tuple(_text(row[name]) for name in names) for row in rows)]
    numeric = {i for i, name in enumerate(names) if isinstance(rows[0][name], int | float)}
    return "\n".join(
        [
            f"signal kept by each format (measured, seed {seed})",
            conditions,
            "",
            *aligned(cells, right=numeric),
        ]
    )


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
