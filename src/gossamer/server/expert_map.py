"""Expert loads as a heat-map: one self-contained SVG with no script, font or file of its own.

A layer is a row, an expert a column, the colour its load over the layer's mean.  The cells are one small PNG
inside, because 92 layers of 896 experts would be 82,432 rectangles.
"""

from __future__ import annotations

import math
import struct
import textwrap
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final

from gossamer.records.expert_load import ExpertLoad, LayerLoad

WIDTH: Final = 640
_LEFT: Final = 52  # layer numbers stand before it
_MAP: Final = 430  # width of the cells
_BARS: Final = _LEFT + _MAP + 18
_BAR_WIDTH: Final = 74
_HEIGHT: Final = 560  # of all rows together, as far as the limits of a row allow
_ROWS: Final = (6.5, 22.0)
_LABEL_GAP: Final = 16.0
_SHARP: Final = (
    1400  # pixels that the map has at least, across and down: its cells keep their edges when enlarged
)

_OCTAVES: Final = 3  # colours reach from 1/8 of the mean to 8 times it
_STEPS: Final = 16  # colours of an octave
_IDLE: Final = (0x45, 0x4C, 0x57)
_STOPS: Final = (
    (-3.0, (0x1F, 0x4E, 0x96)),
    (-1.5, (0x7F, 0xAE, 0xDC)),
    (0.0, (0xF4, 0xF1, 0xEA)),
    (1.0, (0xF6, 0xB4, 0x6A)),
    (2.0, (0xD9, 0x5B, 0x1E)),
    (3.0, (0x8C, 0x12, 0x18)),
)

_STYLE: Final = """
  .card { fill: #ffffff; } .text { fill: #1b2330; } .soft { fill: #5a6472; }
  .line { stroke: #d9dee5; } .bar { fill: #d95b1e; }
  .edge { fill: none; stroke: #9aa4b1; stroke-width: 0.75; }
  text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; font-variant-numeric: tabular-nums; }
  .title { font-size: 18px; font-weight: 600; } .small { font-size: 12px; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #12171f; } .text { fill: #e7ecf3; } .soft { fill: #a3aebc; }
    .line { stroke: #2c3542; } .bar { fill: #f2a65a; } .edge { stroke: #6c7683; }
  }
"""


def draw(load: ExpertLoad) -> str:
    """The picture of a log with at least one layer."""
    rows = load.layers
    step_y = min(_ROWS[1], max(_ROWS[0], _HEIGHT / len(rows)))
    # XML has no place for control characters, not even escaped.
    title = "Expert load of " + "".join(c if c.isprintable() else "\ufffd" for c in load.model)
    notes = textwrap.wrap(_note(load), 88)
    top = 52 + 17 * len(notes) + 26
    bottom = top + step_y * len(rows)
    height = bottom + 116
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
            'aria-labelledby="title note">',
            f'<title id="title">{escape(title)}</title><desc id="note">{escape(_note(load))}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="card" width="{WIDTH}" height="{height:.0f}" rx="8"/>',
            _text(20, 34, title, "text title"),
            *(_text(20, 56 + 17 * i, line, "soft small") for i, line in enumerate(notes)),
            _text(_LEFT - 8, top - 9, "layer", "soft small", anchor="end"),
            _text(_BARS, top - 9, "busiest / mean", "soft small"),
            _cells(rows, top, bottom),
            *_labels(rows, top, step_y),
            *_bars(rows, top, step_y),
            *_experts(load.num_experts, bottom),
            *_legend(bottom + 62),
            "</svg>\n",
        ]
    )


def _note(load: ExpertLoad) -> str:
    total = sum(layer.num_tokens for layer in load.layers)
    layers = f"{len(load.layers)} layer{'s' if len(load.layers) > 1 else ''}"
    text = (
        f"Tokens of each of {load.num_experts} experts over the mean of its layer (measured): {total:,} in "
        f"{layers}, a token counted once for each expert that worked on it."
    )
    if load.idle_layers:
        text += f" Without any load, and left out: {_spans(load.idle_layers)}."
    return text


def _spans(numbers: Sequence[int]) -> str:
    """Numbers in words, such as "layers 0, 5-7"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    spans = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"{'layer' if len(numbers) == 1 else 'layers'} {spans}"


def _cells(rows: Sequence[LayerLoad], top: float, bottom: float) -> str:
    wide, high = max(1, _SHARP // len(rows[0].tokens)), max(1, _SHARP // len(rows))
    lines = [b"".join(bytes([shade]) * wide for shade in _shades(row)) for row in rows]
    data = b64encode(_png([line for line in lines for _ in range(high)])).decode("ascii")
    place = f'x="{_LEFT}" y="{top}" width="{_MAP}" height="{bottom - top:.1f}"'
    return (
        f'<image {place} preserveAspectRatio="none" href="data:image/png;base64,{data}"/>'
        f'<rect class="edge" {place}/>'
    )


def _shades(row: LayerLoad) -> list[int]:
    """Places in the palette: 0 is idle."""
    mean = row.num_tokens / len(row.tokens)
    top = 2 * _OCTAVES * _STEPS
    return [
        0 if count == 0 else 1 + min(top, max(0, round((math.log2(count / mean) + _OCTAVES) * _STEPS)))
        for count in row.tokens
    ]


def _palette() -> bytes:
    colours = [_IDLE, *(_colour(i / _STEPS - _OCTAVES) for i in range(2 * _OCTAVES * _STEPS + 1))]
    return bytes(part for colour in colours for part in colour)


def _colour(octave: float) -> tuple[int, ...]:
    for (low, one), (high, two) in pairwise(_STOPS):
        if octave <= high:
            share = (octave - low) / (high - low)
            return tuple(round(a + share * (b - a)) for a, b in zip(one, two, strict=True))
    return _STOPS[-1][1]


def _png(lines: Sequence[bytes]) -> bytes:
    """An image of one palette byte per pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 3, 0, 0, 0)
    # Filter 2 stores what differs from the line above: nothing, within a layer.
    above, packed = bytes(len(lines[0])), bytearray()
    for line in lines:
        packed += b"\x02" + (bytes(len(line)) if line == above else _minus(line, above))
        above = line
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            chunk(b"IHDR", size),
            chunk(b"PLTE", _palette()),
            chunk(b"IDAT", zlib.compress(bytes(packed), 9)),
            chunk(b"IEND", b""),
        ]
    )


def _minus(line: bytes, above: bytes) -> bytes:
    return bytes((a - b) & 0xFF for a, b in zip(line, above, strict=True))


def _labels(rows: Sequence[LayerLoad], top: float, step_y: float) -> list[str]:
    return [
        _text(_LEFT - 8, top + (i + 0.5) * step_y + 4, str(rows[i].layer), "text small", anchor="end")
        for i in _labelled(rows, step_y)
    ]


def _labelled(rows: Sequence[LayerLoad], step_y: float) -> list[int]:
    """Rows far enough apart for a number each: those of round layers."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step >= _LABEL_GAP / step_y)
    return [i for i, row in enumerate(rows) if row.layer % step == 0]


def _bars(rows: Sequence[LayerLoad], top: float, step_y: float) -> list[str]:
    limit = max(row.max_over_mean for row in rows)
    inset = min(3.0, 0.15 * step_y)
    parts: list[str] = []
    for i, row in enumerate(rows):
        y, high = top + i * step_y + inset, step_y - 2 * inset
        wide = row.max_over_mean / limit * _BAR_WIDTH
        parts.append(f'<rect class="bar" x="{_BARS}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>')
    for i in _labelled(rows, step_y):
        y, x = top + (i + 0.5) * step_y + 4, _BARS + _BAR_WIDTH + 6
        ratio = rows[i].max_over_mean
        parts.append(_text(x, y, f"{ratio:.{2 if ratio < 10 else 1}f}", "text small"))
    return parts


def _experts(count: int, bottom: float) -> list[str]:
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 20) if _MAP / count * s >= 34)
    parts = []
    for expert in range(0, count, step):
        x = _LEFT + (expert + 0.5) * _MAP / count
        parts.append(
            f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom + 1:.1f}" y2="{bottom + 6:.1f}"/>'
        )
        parts.append(_text(x, bottom + 18, str(expert), "soft small", anchor="middle"))
    parts.append(_text(_LEFT, bottom + 38, "expert", "soft small"))
    return parts


def _legend(y: float) -> list[str]:
    parts = [f'<rect x="{_LEFT}" y="{y}" width="34" height="12" fill="{_hex(_IDLE)}"/>']
    parts.append(_text(_LEFT + 17, y + 28, "idle", "soft small", anchor="middle"))
    begin, unit = _LEFT + 64, (_MAP - 64 - 12) / (2 * _OCTAVES)
    cells = 2 * _OCTAVES * 4
    for i in range(cells):
        colour = _hex(_colour((i + 0.5) / 4 - _OCTAVES))
        # A little wider than its place: no card shows between two.
        parts.append(
            f'<rect x="{begin + i * unit / 4:.2f}" y="{y}" width="{unit / 4 + 0.3:.2f}" height="12" '
            f'fill="{colour}"/>'
        )
    for octave in range(-_OCTAVES, _OCTAVES + 1):
        label = f"1/{2**-octave}" if octave < 0 else "mean" if octave == 0 else f"{2**octave} x"
        x = begin + (octave + _OCTAVES) * unit
        parts.append(_text(x, y + 28, label, "soft small", anchor="middle"))
    return parts


def _hex(colour: Sequence[int]) -> str:
    return "#" + bytes(colour).hex()


def _text(x: float, y: float, content: str, style: str, *, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
