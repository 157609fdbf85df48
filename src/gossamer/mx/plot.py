"""A bar chart of format rows as one self-contained SVG: no script, no font or file of its own."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gossamer.mx.report import FormatRow

WIDTH: Final = 560
_LEFT: Final = 208  # where the bars begin; the longest label fits before it
_RIGHT: Final = 40  # room for the number behind the longest bar
_ROW: Final = 40
_BAR: Final = 13
_GAP: Final = 16  # between element widths

_STYLE: Final = """
  .card { fill: #ffffff; } .text { fill: #1b2330; } .soft { fill: #5a6472; }
  .line { stroke: #d9dee5; } .one { fill: #2f66b3; } .two { fill: #d97a1d; }
  text { font: 14px system-ui, -apple-system, 'Segoe UI', sans-serif; font-variant-numeric: tabular-nums; }
  .value { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
  .title { font-size: 18px; font-weight: 600; } .small { font-size: 12.5px; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #12171f; } .text { fill: #e7ecf3; } .soft { fill: #a3aebc; }
    .value { stroke: #12171f; } .line { stroke: #2c3542; } .one { fill: #76a8ea; } .two { fill: #f2a65a; }
  }
"""


def bars(rows: Sequence[FormatRow], *, title: str, note: str) -> str:
    """Two bars per row, Gaussian weights above and weights with outliers below, in dB.

    Args:
        rows: what `gossamer.mx.report.measure` returned.
        title: the heading.
        note: the conditions, wrapped under the heading.
    """
    notes = textwrap.wrap(note, 74)
    top = 52 + 18 * len(notes) + 46
    limit = max(10, math.ceil(max(max(r.gaussian_db, r.outliers_db) for r in rows) / 10) * 10)
    unit = (WIDTH - _LEFT - _RIGHT) / limit
    body: list[str] = []
    y = top
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and _width(before) != _width(row):
            y += _GAP
        body += _bar_pair(row, y, unit)
        y += _ROW
    height = y + 54
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-labelledby="title note">',
            f'<title id="title">{escape(title)}</title><desc id="note">{escape(note)}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="card" width="{WIDTH}" height="{height}" rx="8"/>',
            _text(20, 34, title, "text title"),
            *(_text(20, 56 + 18 * i, line, "soft small") for i, line in enumerate(notes)),
            *_legend(52 + 18 * len(notes) + 16),
            *_grid(limit, unit, top - 8, y),
            *body,
            "</svg>\n",
        ]
    )


def _width(row: FormatRow) -> int:
    return int(row.bits)


def _bar_pair(row: FormatRow, y: float, unit: float) -> list[str]:
    parts = [
        _text(_LEFT - 12, y + 12, f"{row.format}, {row.scaling}", "text", anchor="end"),
        _text(_LEFT - 12, y + 28, f"{row.bits:g} bits", "soft small", anchor="end"),
    ]
    for i, (value, colour) in enumerate(((row.gaussian_db, "one"), (row.outliers_db, "two"))):
        at, length = y + i * (_BAR + 2), max(value, 0) * unit
        parts.append(
            f'<rect class="{colour}" x="{_LEFT}" y="{at}" width="{length:.1f}" height="{_BAR}" rx="1.5"/>'
        )
        parts.append(_text(_LEFT + length + 6, at + 11, f"{value:.1f}", "text small value"))
    return parts


def _legend(y: float) -> list[str]:
    parts: list[str] = []
    for x, colour, label in ((_LEFT, "one", "normal weights"), (_LEFT + 150, "two", "with outliers")):
        parts.append(f'<rect class="{colour}" x="{x}" y="{y}" width="12" height="12" rx="2"/>')
        parts.append(_text(x + 18, y + 11, label, "text small"))
    return parts


def _grid(limit: int, unit: float, top: float, bottom: float) -> list[str]:
    parts: list[str] = []
    for value in range(0, limit + 1, 10):
        x = _LEFT + value * unit
        parts.append(f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(_text(x, bottom + 18, str(value), "soft small", anchor="middle"))
    parts.append(_text(_LEFT, bottom + 38, "SQNR in dB, more is better", "soft small"))
    return parts


def _text(x: float, y: float, content: str, style: str, *, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
