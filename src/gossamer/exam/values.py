"""Argument values by kind.  A kind says what makes a value hard to copy."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

from gossamer.exam.words import WordSource

Rng = random.Random
STRING_KINDS = (
    "word", "phrase", "letters", "number-like", "uuid", "path", "cjk", "quotes", "angle", "escaped-json",
)  # fmt: skip
AWKWARD = frozenset({"quotes", "angle", "escaped-json"})
"""Kinds that hold quotation marks or markup, which some notations would have to escape."""
CJK = "鲸鹭枫砚笛舟霁岚萤榕鲤墨竹帆汐鹿杏谷棠桥窗渡雁梨炉"
KANA = "ネコサカナミズウミホシツキ"
FOLDERS = ("ketch", "loft9", "ore.d", "Quay", "tmp_v", "zeta-2")
ENDINGS = (".lz4", ".wav", ".toml", ".tif", ".ods", "")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def string(kind: str, rng: Rng, words: WordSource) -> str:
    """A string of the kind.

    Args:
        kind: one of `STRING_KINDS`.
        rng: decides.
        words: for the kinds made of words.
    """
    return _MAKERS[kind](rng, words)


def _phrase(rng: Rng, words: WordSource) -> str:
    return " ".join(words.draw(rng) for _ in range(rng.choice((2, 2, 3))))


def _letters(rng: Rng, words: WordSource) -> str:
    alphabet = rng.choice((_LETTERS, _LETTERS.upper(), _LETTERS + _LETTERS.upper() + "0123456789"))
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(5, 9)))


def _number_like(rng: Rng, words: WordSource) -> str:
    n = rng.randint(1, 9999)
    return rng.choice((f"{n:06d}", f"{rng.randint(10, 99)}-{n}", f"{n % 50}.{n % 10}0", f"{n}/{n % 70 + 2}"))


def _uuid(rng: Rng, words: WordSource) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _path(rng: Rng, words: WordSource) -> str:
    parts = [rng.choice((words.draw(rng), rng.choice(FOLDERS))) for _ in range(rng.choice((1, 2, 2)))]
    return rng.choice(("/", "~/", "./", "")) + "/".join(parts) + "/" + words.draw(rng) + rng.choice(ENDINGS)


def _cjk(rng: Rng, words: WordSource) -> str:
    return "".join(rng.choice(rng.choice((CJK, CJK, KANA))) for _ in range(rng.randint(2, 4)))


def _quotes(rng: Rng, words: WordSource) -> str:
    a, b = words.draw(rng), words.draw(rng)
    return rng.choice((f'{a} "{b}"', f'"{a}" {b}', f"{a}'s {b}", f'{a} "{b}\'s"'))


def _angle(rng: Rng, words: WordSource) -> str:
    a, b = words.draw(rng), words.draw(rng)
    return rng.choice((f"<{a}>{b}</{a}>", f"{a}<{b}>", f"<{a}/>", f"<{a} {b}=3>"))


def _escaped_json(rng: Rng, words: WordSource) -> str:
    a, b, n = words.draw(rng), words.draw(rng), rng.randint(0, 99)
    return rng.choice((f'{{"{a}": {n}}}', f'{{\\"{a}\\": \\"{b}\\"}}', f'["{a}", {n}]', f"{a}\\n{b}"))


_MAKERS: dict[str, Callable[[Rng, WordSource], str]] = {
    "word": lambda rng, words: words.draw(rng),
    "phrase": _phrase,
    "letters": _letters,
    "number-like": _number_like,
    "uuid": _uuid,
    "path": _path,
    "cjk": _cjk,
    "quotes": _quotes,
    "angle": _angle,
    "escaped-json": _escaped_json,
}


def number(rng: Rng) -> float:
    """A decimal fraction, never a whole number, so that its type is plain."""
    tenths = rng.choice((10, 100, 1000))
    n = rng.randint(1, 80 * tenths)
    return rng.choice((1, 1, 1, -1)) * (n + (n % tenths == 0)) / tenths


def integer(rng: Rng) -> int:
    """Mostly small, some of up to seven digits, a few negative."""
    top = rng.choice((20, 300, 5000, 9_000_000))
    return rng.choice((1, 1, 1, 1, -1)) * rng.randint(2, top)


def array(rng: Rng, words: WordSource) -> tuple[str, list[Any]]:
    """Its item type ("string" or "integer") and two to four items."""
    n = rng.choice((2, 2, 3, 4))
    if rng.random() < 0.6:
        return "string", [words.draw(rng) for _ in range(n)]
    return "integer", [rng.randint(1, 900) for _ in range(n)]
