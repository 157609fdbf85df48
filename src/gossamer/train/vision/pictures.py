"""Training pictures: facts in, a drawing out.  Layouts, shades and typefaces are drawn anew for each."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gossamer.train.vision.canvas import RANGES, Box, Canvas, Colour, Typefaces, colour, paper, shape
from gossamer.train.vision.facts import Facts

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

SIZES = ((112, 112), (140, 84), (84, 140))
"""Width and height; each is 16 or 15 tokens."""


def draw(kind: str, facts: Facts, size: tuple[int, int], rng: random.Random, typefaces: Typefaces) -> Image:
    """The picture of a kind that shows the facts."""
    if kind == "shapes":
        return _shapes(facts, size, rng)
    if kind == "word":
        return _word(facts, size, rng, typefaces)
    if kind == "chart":
        return _chart(facts, size, rng, typefaces)
    return _screen(facts, size, rng, typefaces)


def _shapes(facts: Facts, size: tuple[int, int], rng: random.Random) -> Image:
    """So many in random cells of a grid, each moved and resized a little."""
    fill = colour(rng, facts["colour"])
    background = paper(rng, fill)
    canvas = Canvas(*size, background)
    count = int(facts["number"])
    across = 1 if count == 1 and rng.random() < 0.5 else 2 if count <= 3 and rng.random() < 0.6 else 3
    down = max(-(-count // across), across - (0 if rng.random() < 0.6 else 1))
    if size[0] > size[1] and across * down >= count and down > 2:
        across, down = down, across
    cells = [(c, r) for c in range(across) for r in range(down)]
    wide, high = size[0] / across, size[1] / down
    base = min(wide, high) / 2 * rng.uniform(0.5, 0.85)
    lean = rng.uniform(-0.5, 0.5) if rng.random() < 0.4 else 0.0
    for column, row in rng.sample(cells, count):
        radius = base * rng.uniform(0.8, 1.0)
        slack_x, slack_y = max(0.0, wide / 2 - 1.15 * radius), max(0.0, high / 2 - 1.15 * radius)
        x = (column + 0.5) * wide + rng.uniform(-slack_x, slack_x)
        y = (row + 0.5) * high + rng.uniform(-slack_y, slack_y)
        shape(canvas, facts["shape"], x, y, radius, fill, background, lean + rng.uniform(-0.1, 0.1))
    return canvas.finish()


def _word(facts: Facts, size: tuple[int, int], rng: random.Random, typefaces: Typefaces) -> Image:
    fill = colour(rng, facts["colour"])
    background = paper(rng, fill)
    canvas = Canvas(*size, background)
    words = facts["word"]
    if rng.random() < 0.15:
        words = words.upper()
    font, (wide, high) = _fitting(words, (size[0] - 8, size[1] - 8), (18, 44), rng, typefaces, canvas)
    x = rng.uniform(wide / 2 + 3, size[0] - wide / 2 - 3)
    y = rng.uniform(high / 2 + 3, size[1] - high / 2 - 3)
    if rng.random() < 0.3:
        below = min(size[1] - 2, y + high / 2 + 4)
        canvas.box((x - wide / 2, below, x + wide / 2, below + 1), fill)
    canvas.text(x, y, words, font, fill)
    return canvas.finish()


def _fitting(
    words: str,
    room: tuple[float, float],
    sizes: tuple[int, int],
    rng: random.Random,
    typefaces: Typefaces,
    canvas: Canvas,
) -> tuple[FreeTypeFont, tuple[float, float]]:
    """A typeface at a size at which the words have room, and what they take."""
    for _ in range(40):
        font = typefaces.pick(rng, rng.randint(*sizes))
        wide, high = canvas.text_size(words, font)
        if wide <= room[0] and high <= room[1]:
            return font, (wide, high)
    font = typefaces.pick(rng, sizes[0] * 2 // 3)
    return font, canvas.text_size(words, font)


def _chart(facts: Facts, size: tuple[int, int], rng: random.Random, typefaces: Typefaces) -> Image:
    background = paper(rng)
    dark = sum(background) < 380
    ink: Colour = (230, 230, 230) if dark else (30, 30, 30)
    canvas = Canvas(*size, background)
    count, winner = int(facts["bars"]), "ABCD".index(facts["tallest"])
    left, right, top = rng.uniform(6, 16), size[0] - rng.uniform(4, 10), rng.uniform(6, 14)
    font = typefaces.pick(rng, rng.randint(10, 15))
    floor = size[1] - rng.uniform(16, 20)
    room, step = floor - top, (right - left) / count
    tallest = rng.uniform(0.6, 1.0)
    names = rng.sample([name for name in RANGES if name != ("black" if dark else "yellow")], count)
    fills = [colour(rng, name) for name in (names if rng.random() < 0.6 else names[:1] * count)]
    wide = step * rng.uniform(0.45, 0.8)
    for bar in range(count):
        share = tallest if bar == winner else tallest * rng.uniform(0.12, 0.82)
        middle = left + (bar + 0.5) * step
        box: Box = (middle - wide / 2, floor - share * room, middle + wide / 2, floor)
        canvas.box(box, fills[bar], ink if rng.random() < 0.2 else None)
        canvas.text(middle, (floor + size[1]) / 2, "ABCD"[bar], font, ink)
    canvas.box((left - 2, floor, right, floor + 1), ink)
    if rng.random() < 0.5:
        canvas.box((left - 2, top - 2, left - 1, floor), ink)
    return canvas.finish()


def _screen(facts: Facts, size: tuple[int, int], rng: random.Random, typefaces: Typefaces) -> Image:
    """A window with one button at the named place, a switch elsewhere, and lines that look like text."""
    background = paper(rng)
    dark = sum(background) < 380
    ink: Colour = (225, 225, 225) if dark else (40, 40, 40)
    canvas = Canvas(*size, background)
    if rng.random() < 0.5:
        bar = colour(rng, rng.choice(list(RANGES)))
        canvas.box((0, 0, size[0], rng.uniform(5, 9)), bar)
    font, (wide, high) = _fitting(facts["button"], (0.62 * size[0], 24), (11, 17), rng, typefaces, canvas)
    half_x, half_y = wide / 2 + rng.uniform(4, 8), high / 2 + rng.uniform(3, 7)
    x, y = _middle(facts["place"], size, half_x, half_y, rng)
    face = colour(rng, rng.choice(list(RANGES)))
    box = (x - half_x, y - half_y, x + half_x, y + half_y)
    canvas.box(box, face, ink if rng.random() < 0.4 else None, rng.choice((0, 3, half_y)))
    lettering: Colour = (255, 255, 255) if sum(face) < 360 else (15, 15, 15)
    canvas.text(x, y, facts["button"], font, lettering)
    taken: list[Box] = [(box[0] - 4, box[1] - 4, box[2] + 4, box[3] + 4)]
    spot = _free(size, 22, 13, taken, rng, tries=200) or (size[0] / 2, size[1] - 13)
    _switch(canvas, spot, facts["switch"] == "on", dark, rng)
    taken.append((spot[0] - 14, spot[1] - 9, spot[0] + 14, spot[1] + 9))
    for _ in range(rng.randint(0, 4)):
        length = rng.uniform(12, 40)
        at = _free(size, length, 4, taken, rng, tries=8)
        if at is not None:
            canvas.box((at[0] - length / 2, at[1] - 1, at[0] + length / 2, at[1] + 1), ink)
    return canvas.finish()


def _middle(
    place: str, size: tuple[int, int], half_x: float, half_y: float, rng: random.Random
) -> tuple[float, float]:
    """Where a button's middle lies for a named place."""
    if place == "middle":
        return size[0] / 2 + rng.uniform(-4, 4), size[1] / 2 + rng.uniform(-5, 5)
    x = half_x + rng.uniform(3, 9)
    y = half_y + rng.uniform(10, 16)
    return (
        size[0] - x if "right" in place else x,
        size[1] - y + 6 if "bottom" in place else y,
    )


def _free(
    size: tuple[int, int], wide: float, high: float, taken: list[Box], rng: random.Random, *, tries: int
) -> tuple[float, float] | None:
    """A middle for something so large that meets nothing taken; None where none was found."""
    for _ in range(tries):
        x = rng.uniform(wide / 2 + 3, size[0] - wide / 2 - 3)
        y = rng.uniform(high / 2 + 10, size[1] - high / 2 - 3)
        box = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        if all(box[2] < t[0] or box[0] > t[2] or box[3] < t[1] or box[1] > t[3] for t in taken):
            return x, y
    return None


def _switch(canvas: Canvas, spot: tuple[float, float], on: bool, dark: bool, rng: random.Random) -> None:
    """A pill whose knob is at the right and whose bed is coloured where it is on."""
    x, y = spot
    wide, high = rng.uniform(19, 23), rng.uniform(10, 12)
    lit = colour(rng, rng.choice(("green", "blue", "purple", "orange")))
    level = rng.randint(90, 120) if dark else rng.randint(160, 190)
    bed = lit if on else (level, level, level)
    canvas.box((x - wide / 2, y - high / 2, x + wide / 2, y + high / 2), bed, None, high / 2)
    knob = x + (wide / 2 - high / 2) * (1 if on else -1)
    canvas.disc(knob, y, high / 2 - 1.5, (255, 255, 255))
