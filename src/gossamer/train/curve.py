"""A loss curve as a small SVG file, from the training log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 720, 320, 48
COLOURS = {"text": "#1f77b4", "indexer": "#7f7f7f", "dialogue": "#d62728"}
WINDOW = 10


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


def svg(curve: list[Point], title: str) -> str:
    """The curve with axes; one colour per phase."""
    most_tokens = max((p.tokens for p in curve), default=1)
    most_loss = max((p.loss for p in curve), default=1.0)

    def x(tokens: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * tokens / most_tokens

    def y(loss: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * loss / most_loss

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle">{title}</text>',
        f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="black"/>',
    ]
    for step in range(int(most_loss) + 1):
        parts.append(f'<text x="{MARGIN - 8}" y="{y(step) + 4:.1f}" text-anchor="end">{step}</text>')
    for quarter in range(1, 5):
        tokens = most_tokens * quarter / 4
        parts.append(
            f'<text x="{x(tokens):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{tokens / 1e6:.2f} M</text>'
        )
    for row, phase in enumerate(dict.fromkeys(p.phase for p in curve)):
        own = " ".join(f"{x(p.tokens):.1f},{y(p.loss):.1f}" for p in curve if p.phase == phase)
        colour = COLOURS.get(phase, "#2ca02c")
        parts.append(f'<polyline points="{own}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{WIDTH - MARGIN - 90}" y="{MARGIN + 16 * row}" fill="{colour}">{phase}</text>'
        )
    label = "tokens seen; loss in nats"
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text></svg>')
    return "\n".join(parts) + "\n"
