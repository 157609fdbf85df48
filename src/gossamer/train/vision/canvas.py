"""Drawing for the training pictures: colours by name, typefaces, shapes; twice as large as the picture.

The typefaces are the DejaVu and Computer Modern files that matplotlib carries, both permissive.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]

SCALE = 2
"""Pixels are drawn finer and averaged, so that edges are smooth."""
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf",
    "cmr10.ttf",
    "cmss10.ttf",
    "cmtt10.ttf",
    "cmb10.ttf",
)
RANGES: dict[str, tuple[tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    "red": ((195, 255), (0, 45), (0, 45)),
    "green": ((0, 60), (125, 200), (0, 70)),
    "blue": ((0, 60), (30, 110), (180, 255)),
    "yellow": ((225, 255), (200, 245), (0, 70)),
    "black": ((0, 30), (0, 30), (0, 30)),
    "purple": ((110, 160), (0, 60), (130, 200)),
    "orange": ((235, 255), (110, 150), (0, 40)),
    "grey": ((115, 155), (115, 155), (115, 155)),
}
"""Of red, green and blue, for each name."""


class Typefaces:
    """The training typefaces, opened once for each size."""

    def __init__(self) -> None:
        import matplotlib

        self._folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        self._open: dict[tuple[str, int], FreeTypeFont] = {}

    def pick(self, rng: random.Random, size: int) -> FreeTypeFont:
        """One of them at a size in pixels of the picture."""
        key = (rng.choice(FONTS), size)
        if key not in self._open:
            from PIL import ImageFont

            self._open[key] = ImageFont.truetype(str(self._folder / key[0]), SCALE * size)
        return self._open[key]


def colour(rng: random.Random, name: str) -> Colour:
    """A shade of a named colour; greys keep their parts equal but for a little."""
    low, high = zip(*RANGES[name], strict=True)
    if name in ("grey", "black"):
        level = rng.randint(low[0], high[0])
        red, green, blue = (min(high[0], max(low[0], level + rng.randint(-6, 6))) for _ in range(3))
        return red, green, blue
    red, green, blue = (rng.randint(a, b) for a, b in zip(low, high, strict=True))
    return red, green, blue


def paper(rng: random.Random, against: Colour | None = None) -> Colour:
    """A background, light or sometimes dark, on which ``against`` can be seen."""
    for _ in range(50):
        if rng.random() < 0.25:
            found = (rng.randint(0, 50), rng.randint(0, 50), rng.randint(0, 60))
        else:
            base = rng.randint(205, 255)
            found = (base, min(255, base + rng.randint(-12, 12)), min(255, base + rng.randint(-12, 12)))
        if against is None or contrast(found, against) > 110:
            return found
    return (255, 255, 255)


def contrast(a: Colour, b: Colour) -> float:
    """Distance of two colours, brightness counted more."""
    bright = abs(0.3 * (a[0] - b[0]) + 0.59 * (a[1] - b[1]) + 0.11 * (a[2] - b[2]))
    return bright + sum(abs(x - y) for x, y in zip(a, b, strict=True)) / 3


class Canvas:
    """A picture in the making; all lengths are in its own pixels."""

    def __init__(self, width: int, height: int, background: Colour) -> None:
        from PIL import Image, ImageDraw

        self.width, self.height = width, height
        self._image = Image.new("RGB", (SCALE * width, SCALE * height), background)
        self.pen = ImageDraw.Draw(self._image)

    def finish(self) -> Image:
        """The picture at its own size."""
        return self._image.reduce(SCALE)

    def box(self, box: Box, fill: Colour | None, outline: Colour | None = None, radius: float = 0) -> None:
        """A rectangle with round corners."""
        scaled = tuple(SCALE * v for v in box)
        self.pen.rounded_rectangle(scaled, SCALE * radius, fill=fill, outline=outline, width=SCALE)

    def polygon(self, points: list[tuple[float, float]], fill: Colour) -> None:
        """A filled polygon."""
        self.pen.polygon([(SCALE * x, SCALE * y) for x, y in points], fill=fill)

    def disc(self, x: float, y: float, radius: float, fill: Colour) -> None:
        """A filled circle."""
        r = radius
        self.pen.ellipse([SCALE * v for v in (x - r, y - r, x + r, y + r)], fill=fill)

    def text(self, x: float, y: float, words: str, font: FreeTypeFont, fill: Colour) -> None:
        """Words around a middle."""
        self.pen.text((SCALE * x, SCALE * y), words, font=font, fill=fill, anchor="mm")

    def text_size(self, words: str, font: FreeTypeFont) -> tuple[float, float]:
        """Width and height that words take."""
        left, top, right, bottom = font.getbbox(words, anchor="mm")
        return (right - left) / SCALE, (bottom - top) / SCALE


def shape(
    canvas: Canvas, kind: str, x: float, y: float, radius: float, fill: Colour, behind: Colour, turn: float
) -> None:
    """One of the named shapes around (x, y), turned by an angle in radians."""

    def around(count: int, radii: tuple[float, ...], offset: float) -> list[tuple[float, float]]:
        return [
            (
                x + radii[i % len(radii)] * math.cos(offset + 2 * math.pi * i / count),
                y + radii[i % len(radii)] * math.sin(offset + 2 * math.pi * i / count),
            )
            for i in range(count)
        ]

    up = turn - math.pi / 2
    if kind == "circle":
        canvas.disc(x, y, radius, fill)
    elif kind == "ring":
        canvas.disc(x, y, radius, fill)
        canvas.disc(x, y, 0.55 * radius, behind)
    elif kind == "square":
        canvas.polygon(around(4, (1.1 * radius,), up + math.pi / 4), fill)
    elif kind == "triangle":
        canvas.polygon(around(3, (1.15 * radius,), up), fill)
    elif kind == "star":
        canvas.polygon(around(10, (1.15 * radius, 0.46 * radius), up), fill)
    else:
        _cross(canvas, x, y, radius, fill, turn)


def _cross(canvas: Canvas, x: float, y: float, radius: float, fill: Colour, turn: float) -> None:
    arm, half = radius, 0.36 * radius
    for long, short in ((arm, half), (half, arm)):
        corners = [(-long, -short), (long, -short), (long, short), (-long, short)]
        cos, sin = math.cos(turn), math.sin(turn)
        canvas.polygon([(x + a * cos - b * sin, y + a * sin + b * cos) for a, b in corners], fill)
