"""Pictures of the vision exam: typefaces, shades and layouts that training never draws.

Typefaces are STIX (OFL, carried by matplotlib) and the one that Pillow carries.  Picture number n of a seed
is always the same.  What can be asked, and the words that answer it, is all that this file shares with what
trains: a tower of two million weights learns a closed set of answers, not to read.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

Colour = tuple[int, int, int]

FINE = 3
"""Pixels drawn for one of the picture."""
TYPEFACES = ("STIXGeneral.ttf", "STIXGeneralBol.ttf", "")
"""Files of matplotlib; the empty name is Pillow's own."""
SHADES: dict[str, tuple[Colour, ...]] = {
    "red": ((178, 24, 60), (225, 60, 55)),
    "green": ((30, 112, 60), (90, 180, 80)),
    "blue": ((25, 60, 160), (75, 125, 235)),
    "yellow": ((240, 215, 85), (220, 190, 20)),
    "black": ((38, 36, 34), (33, 33, 40)),
    "purple": ((125, 70, 165), (165, 45, 175)),
    "orange": ((230, 125, 45), (250, 155, 25)),
    "grey": ((108, 108, 112), (158, 160, 158)),
}
PAPERS: tuple[Colour, ...] = ((250, 236, 214), (226, 240, 250), (240, 228, 242), (200, 214, 200))
ANSWERS: dict[str, tuple[str, ...]] = {
    "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
    "colour": tuple(SHADES),
    "number": ("1", "2", "3", "4", "5", "6"),
    "word": (
        *("cat", "dog", "sun", "map", "key", "box", "hat", "cup", "pen", "bus"),
        *("fish", "tree", "book", "milk", "star", "door", "ship", "lamp", "bird", "rain"),
    ),
    "tallest": ("A", "B", "C", "D"),
    "bars": ("2", "3", "4"),
    "button": ("Save", "Open", "Close", "Send", "Help", "Edit", "Stop", "Next"),
    "place": ("top left", "top right", "bottom left", "bottom right", "middle"),
    "switch": ("on", "off"),
}
ASKED: dict[str, str] = {
    "shape": "What shape is it?",
    "colour": "What colour is it?",
    "number": "How many are there?",
    "word": "What word is written?",
    "tallest": "Which bar is tallest?",
    "bars": "How many bars are there?",
    "button": "What does the button say?",
    "place": "Where is the button?",
    "switch": "Is the switch on or off?",
}
KINDS: dict[str, tuple[str, ...]] = {
    "shapes": ("shape", "colour", "number"),
    "word": ("word", "colour"),
    "chart": ("tallest", "bars"),
    "screen": ("button", "place", "switch"),
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture with its question.

    Attributes:
        kind: Of `KINDS`.
        slot: What is asked for.
        question: In words.
        answer: The only right one.
        image: RGB.
    """

    kind: str
    slot: str
    question: str
    answer: str
    image: Image


def picture(seed: int, number: int) -> Picture:
    """Picture ``number`` of an exam; kinds in turn, and each kind's slots in turn."""
    rng = random.Random(f"picture {seed} {number}")
    kinds = list(KINDS)
    kind = kinds[number % len(kinds)]
    slots = KINDS[kind]
    slot = slots[number // len(kinds) % len(slots)]
    facts = {name: rng.choice(ANSWERS[name]) for name in slots}
    if kind == "chart":
        facts["tallest"] = rng.choice(ANSWERS["tallest"][: int(facts["bars"])])
    drawing = Drawing(rng)
    getattr(drawing, kind)(facts)
    return Picture(kind=kind, slot=slot, question=ASKED[slot], answer=facts[slot], image=drawing.finish())


class Drawing:
    """A square picture of 112 pixels in the making.

    Args:
        rng: Draws what the facts leave open.
    """

    side = 112

    def __init__(self, rng: random.Random) -> None:
        from PIL import Image, ImageDraw

        self._rng = rng
        self._paper = rng.choice(PAPERS)
        self._image = Image.new("RGB", (FINE * self.side,) * 2, self._paper)
        self._pen = ImageDraw.Draw(self._image)

    def finish(self) -> Image:
        """The picture at its own size."""
        return self._image.reduce(FINE)

    def shapes(self, facts: dict[str, str]) -> None:
        """In a row, a slanted line or a circle, all of one size."""
        count, rng = int(facts["number"]), self._rng
        fill = self._shade(facts["colour"])
        for x, y, radius in _places(count, rng):
            self._shape(facts["shape"], x, y, radius, fill)

    def word(self, facts: dict[str, str]) -> None:
        """In the middle of a frame."""
        fill, rng = self._shade(facts["colour"]), self._rng
        font = self._font(facts["word"], rng.randint(26, 40), 92)
        inset = rng.randint(4, 9)
        self._rectangle(inset, inset, self.side - inset, self.side - inset, None, (120, 120, 120))
        self._text(56 + rng.randint(-4, 4), 56 + rng.randint(-14, 14), facts["word"], font, fill)

    def chart(self, facts: dict[str, str]) -> None:
        """On a ruled field, with narrow bars of one colour, the best one of another at times."""
        count, winner, rng = int(facts["bars"]), "ABCD".index(facts["tallest"]), self._rng
        floor, left = 92, 12
        for line in range(4):
            self._rectangle(left, floor - 21 * line, 106, floor - 21 * line + 0.6, (150, 150, 150))
        step = (104 - left) / count
        fill = self._shade(rng.choice([name for name in SHADES if name != "yellow"]))
        font = self._font("A", 13, 20)
        top = rng.uniform(54, 80)
        for bar in range(count):
            high = top if bar == winner else top * rng.uniform(0.2, 0.78)
            middle = left + 2 + (bar + 0.5) * step
            half = min(9.0, 0.3 * step)
            self._rectangle(middle - half, floor - high, middle + half, floor, fill)
            self._text(middle, 101, "ABCD"[bar], font, (45, 45, 45))

    def screen(self, facts: dict[str, str]) -> None:
        """A dialogue window with a title line and a border; the switch has a line of text beside it."""
        rng = self._rng
        self._rectangle(1, 1, 111, 111, (252, 250, 246), (70, 70, 80))
        self._rectangle(1, 1, 111, 7, self._shade(rng.choice(["blue", "grey", "green"])))
        font = self._font(facts["button"], rng.randint(13, 16), 60)
        wide = font.getlength(facts["button"]) / FINE + 12
        x, y = {
            "middle": (56.0, 58.0),
            "top left": (6 + wide / 2, 21.0),
            "top right": (106 - wide / 2, 21.0),
            "bottom left": (6 + wide / 2, 97.0),
            "bottom right": (106 - wide / 2, 97.0),
        }[facts["place"]]
        face = self._shade(rng.choice(["blue", "green", "purple", "red", "grey"]))
        self._rectangle(x - wide / 2, y - 9, x + wide / 2, y + 9, face, (60, 60, 60), radius=5)
        self._text(x, y, facts["button"], font, (250, 250, 250))
        lines = [line for line in (36.0, 78.0) if abs(line - y) > 15]
        at = rng.choice(lines)
        self._rectangle(10, at - 1, 10 + rng.randint(24, 44), at + 1, (110, 110, 110))
        self._toggle(88, at, facts["switch"] == "on")

    def _toggle(self, x: float, y: float, on: bool) -> None:
        bed = self._shade(self._rng.choice(["green", "blue"])) if on else (178, 178, 182)
        self._rectangle(x - 11, y - 6, x + 11, y + 6, bed, radius=6)
        self._disc(x + (5 if on else -5), y, 4.5, (255, 255, 255))

    def _shade(self, name: str) -> Colour:
        return self._rng.choice(SHADES[name])

    def _font(self, words: str, size: int, room: float) -> FreeTypeFont:
        """A typeface at a size, smaller where the words would not have room."""
        import matplotlib
        from PIL import ImageFont

        file = self._rng.choice(TYPEFACES)
        folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        while True:
            if file:
                font = ImageFont.truetype(str(folder / file), FINE * size)
            else:
                font = ImageFont.load_default(FINE * size)
                assert isinstance(font, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
            if font.getlength(words) <= FINE * room or size <= 8:
                return font
            size -= 1

    def _text(self, x: float, y: float, words: str, font: FreeTypeFont, fill: Colour) -> None:
        self._pen.text((FINE * x, FINE * y), words, font=font, fill=fill, anchor="mm")

    def _rectangle(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: Colour | None,
        outline: Colour | None = None,
        radius: float = 0,
    ) -> None:
        box = (FINE * left, FINE * top, FINE * right, FINE * bottom)
        self._pen.rounded_rectangle(box, FINE * radius, fill=fill, outline=outline, width=FINE)

    def _disc(self, x: float, y: float, radius: float, fill: Colour) -> None:
        self._pen.ellipse([FINE * v for v in (x - radius, y - radius, x + radius, y + radius)], fill=fill)

    def _polygon(self, x: float, y: float, corners: list[tuple[float, float]], fill: Colour) -> None:
        self._pen.polygon([(FINE * (x + a), FINE * (y + b)) for a, b in corners], fill=fill)

    def _shape(self, kind: str, x: float, y: float, radius: float, fill: Colour) -> None:
        if kind in ("circle", "ring"):
            self._disc(x, y, radius, fill)
            if kind == "ring":
                self._disc(x, y, 0.6 * radius, self._paper)
            return
        if kind == "cross":
            third = 0.33 * radius
            self._rectangle(x - radius, y - third, x + radius, y + third, fill)
            self._rectangle(x - third, y - radius, x + third, y + radius, fill)
            return
        if kind == "square":
            side = 0.8 * radius
            self._rectangle(x - side, y - side, x + side, y + side, fill)
            return
        points, inner = (5, 0.42) if kind == "star" else (3, 0.5)
        corners = []
        for corner in range(2 * points):
            length = 1.1 * radius * (1 if corner % 2 == 0 else inner)
            angle = math.pi * corner / points - math.pi / 2
            corners.append((length * math.cos(angle), length * math.sin(angle)))
        self._polygon(x, y, corners, fill)


def _places(count: int, rng: random.Random) -> list[tuple[float, float, float]]:
    """(x, y, radius) of so many shapes that do not touch."""
    if count == 1:
        return [(56 + rng.uniform(-12, 12), 56 + rng.uniform(-12, 12), rng.uniform(20, 34))]
    if count >= 4 or rng.random() < 0.4:
        turn, far = rng.uniform(0, 2 * math.pi), 36.0
        radius = min(16.0, 0.82 * far * math.sin(math.pi / count)) * rng.uniform(0.8, 1.0)
        angles = [turn + 2 * math.pi * i / count for i in range(count)]
        return [(56 + far * math.cos(a), 56 + far * math.sin(a), radius) for a in angles]
    slant, radius = rng.uniform(-24, 24), rng.uniform(10, 14)
    return [
        (56 + 34 * (i - (count - 1) / 2), 56 + slant * (i - (count - 1) / 2), radius) for i in range(count)
    ]
