"""A loss curve as a small SVG file, from the training log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 720, 320, 48
# A phase belongs to the first kind whose word is in its name; a plain "dialogue" is sparse.
KINDS = (
    ("text", "text", "#2f6bbf"),
    ("indexer", "indexer alone", "#6e7781"),
    ("copying", "copying drill", "#8250df"),
    ("dense", "dialogue, dense", "#2a8f4f"),
    ("dialogue", "dialogue, sparse", "#d9480f"),
)
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
    """The curve with axes; one line per phase, one colour per kind of phase."""
    most_tokens = max((p.tokens for p in curve), default=1)
    most_loss = max((p.loss for p in curve), default=1.0)

    def x(tokens: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * tokens / most_tokens

    def y(loss: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * loss / most_loss

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="20" font-weight="bold">{title}: mean loss of {WINDOW} steps, nats</text>',
        f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="#57606a"/>',
    ]
    for step in range(int(most_loss) + 1):
        parts.append(f'<text x="{MARGIN - 8}" y="{y(step) + 4:.1f}" text-anchor="end">{step}</text>')
    for millions, tokens in _ticks(most_tokens):
        parts.append(f'<text x="{x(tokens):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{millions} M</text>')
    for phase in dict.fromkeys(p.phase for p in curve):
        own = " ".join(f"{x(p.tokens):.1f},{y(p.loss):.1f}" for p in curve if p.phase == phase)
        parts.append(f'<polyline points="{own}" fill="none" stroke="{_kind(phase)[1]}" stroke-width="1.5"/>')
    for row, (name, colour) in enumerate(dict.fromkeys(_kind(p.phase) for p in curve)):
        at = MARGIN + 16 * row
        parts.append(f'<text x="{WIDTH - MARGIN}" y="{at}" text-anchor="end" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens seen</text></svg>')
    return "\n".join(parts) + "\n"


def _kind(phase: str) -> tuple[str, str]:
    return next(((name, colour) for word, name, colour in KINDS if word in phase), (phase, "#24292f"))


def _ticks(most_tokens: int) -> list[tuple[str, float]]:
    """Labels in millions at round numbers, at most eight of them."""
    step = 0.001
    while most_tokens / (step * 1e6) > 8:
        step *= 2.5 if f"{step:.0e}"[0] == "2" else 2
    return [(f"{n * step:g}", n * step * 1e6) for n in range(1, int(most_tokens / (step * 1e6)) + 1)]
