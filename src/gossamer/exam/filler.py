"""Neutral text to hide a fact in."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from gossamer.exam.errors import ExamError
from gossamer.exam.words import WordSource

FRAMES = (
    "The {a} lay beside the {b} for most of the winter.",
    "Nobody in the valley spoke of the {a} any more.",
    "A {a} is heavier than a {b}, though not by much.",
    "When the wind turned, the {a} began to hum.",
    "Two carts of {a} went past the gate before noon.",
    "The old road bends twice between the {a} and the {b}.",
    "They painted the {a} grey and left the {b} as it was.",
    "In wet years the {a} grows slowly.",
    "She put the {a} on the shelf and closed the window.",
    "A good {a} lasts longer than the {b} it came with.",
    "The {a} had been mended with a piece of {b}.",
    "Some say the {a} was here first, others say the {b}.",
)
COMMON = ("lantern", "hedge", "ladle", "barrel", "meadow", "pebble", "shutter", "thistle", "plank", "kettle",
          "gravel", "ribbon", "orchard", "pulley", "saddle", "chimney")  # fmt: skip
MIN_SENTENCES = 20


def sentences(rng: random.Random, words: WordSource) -> Iterator[str]:
    """Sentences without end: plain words, now and then an invented one."""
    while True:
        a, b = (words.draw(rng) if rng.random() < 0.1 else rng.choice(COMMON) for _ in range(2))
        yield rng.choice(FRAMES).replace("{a}", a).replace("{b}", b)


def sentences_of(path: Path, rng: random.Random) -> Iterator[str]:
    """The sentences of a UTF-8 text from a random one on, again and again.

    Raises:
        ExamError: the file cannot be read or has fewer than 20 sentences.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExamError(f"cannot read the filler {path}: {error}") from None
    found = [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]
    if len(found) < MIN_SENTENCES:
        raise ExamError(f"{path} holds {len(found)} sentences; a filler needs at least {MIN_SENTENCES}")

    def endless() -> Iterator[str]:
        at = rng.randrange(len(found))
        while True:
            yield found[at % len(found)]
            at += 1

    return endless()
