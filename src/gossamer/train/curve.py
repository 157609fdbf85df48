"""The training log as pictures: the loss of every phase, and how evenly the routers load their experts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("#2f6bbf", "#2a8f4f", "#6e7781", "#d9480f", "#8250df")
"""Of the phases, in their order."""
WINDOW = 10
INCHES = (8.0, 4.0)
DOTS = 120
"""Per inch: 960 x 480 pixels."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """The mean loss of some steps, at the number of tokens seen by then."""

    phase: str
    tokens: int
    loss: float


def read_log(path: Path) -> list[dict]:
    """The step records of a log; a step that was done again after a resume counts once, the later one."""
    steps: dict[int, dict] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "step" in record:
            steps[record["step"]] = record
    return [steps[number] for number in sorted(steps)]


def points(records: list[dict]) -> list[Point]:
    """Mean loss of each `WINDOW` steps of one phase."""
    found: list[Point] = []
    tokens, sums, count = 0, 0.0, 0
    for position, record in enumerate(records):
        tokens += record["tokens"]
        sums, count = sums + record["loss"], count + 1
        last = position + 1 == len(records) or records[position + 1]["phase"] != record["phase"]
        if count == WINDOW or last:
            found.append(Point(phase=record["phase"], tokens=tokens, loss=sums / count))
            sums, count = 0.0, 0
    return found


@dataclass(frozen=True, kw_only=True)
class Loads:
    """The load of one layer's experts over the run, each over the mean load; 1.0 is even."""

    layer: int
    tokens: tuple[int, ...]
    """[N] seen by the time of each record."""
    largest: tuple[float, ...]
    """[N] of the expert with most tokens."""
    smallest: tuple[float, ...]
    """[N] of the expert with fewest."""


def loads(records: Sequence[dict]) -> list[Loads]:
    """The records that hold every expert's load, by layer."""
    kept: dict[int, list[tuple[int, float, float]]] = {}
    tokens = 0
    for record in records:
        tokens += record["tokens"]
        for layer, shares in record.get("loads", {}).items():
            kept.setdefault(int(layer), []).append((tokens, max(shares), min(shares)))
    found = []
    for layer, entries in sorted(kept.items()):
        at, largest, smallest = zip(*entries, strict=True)
        found.append(Loads(layer=layer, tokens=at, largest=largest, smallest=smallest))
    return found


def draw_loss(curve: Sequence[Point], path: Path, title: str) -> None:
    """Write the loss over the tokens seen as PNG; one line per phase."""
    figure, axes = _figure(title)
    for number, phase in enumerate(dict.fromkeys(p.phase for p in curve)):
        own = [p for p in curve if p.phase == phase]
        axes.plot(
            [p.tokens / 1e6 for p in own],
            [p.loss for p in own],
            color=COLOURS[number % len(COLOURS)],
            linewidth=1.2,
            label=phase,
        )
    axes.set_ylabel(f"mean loss of {WINDOW} steps, nats")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _write(figure, path)


def draw_loads(layers: Sequence[Loads], path: Path, title: str) -> None:
    """Write the largest and smallest load of every layer's experts over the tokens seen as PNG."""
    import matplotlib

    figure, axes = _figure(title)
    shades = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.9, max(1, len(layers))))
    for own, shade in zip(layers, shades, strict=False):
        at = [tokens / 1e6 for tokens in own.tokens]
        axes.plot(at, own.largest, color=shade, linewidth=1.0, label=f"layer {own.layer}")
        axes.plot(at, own.smallest, color=shade, linewidth=1.0, linestyle=":")
    axes.axhline(1.0, color="#24292f", linewidth=0.8)
    # Linear: an expert without a token is at zero, where a logarithm would leave the picture.
    axes.set_ylim(bottom=0)
    axes.set_ylabel("load over the mean of the layer")
    axes.legend(
        loc="upper right",
        frameon=False,
        fontsize="small",
        ncols=4,
        title="largest (solid), smallest (dotted)",
    )
    _write(figure, path)


def _figure(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # Without pyplot there is no display and no state shared between figures.
    figure = Figure(figsize=INCHES, dpi=DOTS, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize="medium", fontweight="bold")
    axes.set_xlabel("million tokens seen")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color="#d0d7de", linewidth=0.6)
    return figure, axes


def _write(figure: Any, path: Path) -> None:
    # No date and no version in the file: the same log gives the same bytes.
    figure.savefig(path, format="png", metadata={"Software": None})
