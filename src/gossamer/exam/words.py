"""Where the exam's words come from: invented ones, and those of a file given on the command line."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

from gossamer.exam.errors import ExamError

MIN_WORDS = 50
_WORD = re.compile(r"[A-Za-z]{4,14}")
ONSETS = ("b", "br", "d", "dr", "f", "g", "gl", "h", "j", "k", "l", "m", "n", "p", "pl", "q", "r", "s", "sk")
MORE_ONSETS = ("sm", "t", "tr", "v", "vl", "w", "y", "z", "zh")
VOWELS = ("a", "e", "i", "o", "u", "a", "e", "o", "y")
CODAS = ("", "", "b", "ck", "d", "ft", "l", "lm", "m", "n", "nt", "p", "r", "rk", "sh", "st", "x", "zz")


@dataclass(frozen=True, kw_only=True)
class WordSource:
    """Words to use as values and in invented names.

    Attributes:
        listed: words of a file; empty where none was given.
    """

    listed: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> WordSource:
        """The distinct words of 4 to 14 Latin letters in a UTF-8 text, in lower case.

        Raises:
            ExamError: the file cannot be read, or holds fewer than 50 such words.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ExamError(f"cannot read the words of {path}: {error}") from None
        found = tuple(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
        if len(found) < MIN_WORDS:
            raise ExamError(
                f"{path} holds {len(found)} words of 4 to 14 Latin letters; give at least {MIN_WORDS}"
            )
        return cls(listed=found)

    def draw(self, rng: random.Random) -> str:
        """One word: of the file in half of the draws where there is one, else invented."""
        if self.listed and rng.random() < 0.5:
            return rng.choice(self.listed)
        return invented(rng)


def invented(rng: random.Random) -> str:
    """A word of two or three syllables that no dictionary is meant to hold."""
    onsets = ONSETS + MORE_ONSETS
    syllables = (rng.choice(onsets) + rng.choice(VOWELS) for _ in range(rng.choice((1, 2, 2))))
    return "".join(syllables) + rng.choice(onsets) + rng.choice(VOWELS) + rng.choice(CODAS)
