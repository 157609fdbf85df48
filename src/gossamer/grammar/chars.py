"""Regular expressions over characters, as values: built by the schema, printed for llguidance.

Intersections stand at the top of a terminal only, which is where llguidance takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

MAX_CHAR = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
SHORT_ESCAPES = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 0x22: '"', 0x5C: "\\"}


@dataclass(frozen=True)
class Chars:
    """One character out of sorted, disjoint, inclusive ranges of code points; none at all matches nothing."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Cat:
    """Parts one after the other; no parts match the empty text."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True)
class Alt:
    """Any one of the parts."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True)
class Repeat:
    """From ``low`` to ``high`` times; None is without end."""

    part: Regex
    low: int
    high: int | None


@dataclass(frozen=True)
class Both:
    """What every part matches."""

    parts: tuple[Regex, ...]


Regex = Chars | Cat | Alt | Repeat | Both
EPSILON = Cat(())
NOTHING = Chars(())


def chars(*ranges: tuple[int, int] | str) -> Chars:
    """A class from ranges of code points and strings of characters."""
    spans: list[tuple[int, int]] = []
    for item in ranges:
        spans += [(ord(c), ord(c)) for c in item] if isinstance(item, str) else [item]
    return Chars(_merged(spans))


def negated(part: Chars) -> Chars:
    """Every character that UTF-8 can hold and the class does not."""
    spans, start = [], 0
    for low, high in [*_merged([*part.ranges, SURROGATES]), (MAX_CHAR + 1, MAX_CHAR + 1)]:
        if start < low:
            spans.append((start, low - 1))
        start = high + 1
    return Chars(tuple(spans))


def minus(part: Chars, other: Chars) -> Chars:
    """The first class without the second."""
    return negated(Chars(_merged([*negated(part).ranges, *other.ranges])))


def text(literal: str) -> Regex:
    """Exactly this text."""
    return Cat(tuple(chars(c) for c in literal))


def optional(part: Regex) -> Regex:
    """The part or nothing."""
    return Repeat(part, 0, 1)


def star(part: Regex) -> Regex:
    """The part any number of times."""
    return Repeat(part, 0, None)


ANY = Chars(((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, MAX_CHAR)))
DIGIT = Chars(((0x30, 0x39),))


def without(words: Iterable[str]) -> Regex:
    """Every text that is none of the words."""
    return _without(tuple(sorted(set(words))), 0)


def _without(words: tuple[str, ...], at: int) -> Regex:
    firsts: dict[str, list[str]] = {}
    ends = False
    for word in words:
        if len(word) == at:
            ends = True
        else:
            firsts.setdefault(word[at], []).append(word)
    other = minus(ANY, chars("".join(firsts)))
    parts: list[Regex] = [Cat((other, star(ANY)))]
    parts += [Cat((chars(c), _without(tuple(rest), at + 1))) for c, rest in firsts.items()]
    return Alt(tuple(parts) if ends else (EPSILON, *parts))


def quoted(part: Regex) -> Regex:
    """What stands between the quotes of a JSON string whose value matches; one spelling per character."""
    match part:
        case Chars():
            return _quoted_chars(part)
        case Repeat():
            return Repeat(quoted(part.part), part.low, part.high)
        case _:
            return type(part)(tuple(quoted(p) for p in part.parts))


@cache
def _quoted_chars(part: Chars) -> Regex:
    special = chars((0, 0x1F), '"\\')
    parts: list[Regex] = [minus(part, special)]
    needed = minus(part, negated(special)).ranges
    points = [c for low, high in needed for c in range(low, high + 1)]
    short = "".join(SHORT_ESCAPES[c] for c in points if c in SHORT_ESCAPES)
    if short:
        parts.append(Cat((chars("\\"), chars(short))))
    for row in (0, 1):
        digits = "".join(f"{c % 16:x}" for c in points if c not in SHORT_ESCAPES and c // 16 == row)
        if digits:
            parts.append(Cat((text(f"\\u00{row}"), chars(digits))))
    return parts[0] if len(parts) == 1 else Alt(tuple(parts))


def wrapped(before: str, part: Regex, after: Regex) -> Regex:
    """The part between two others, intersections kept at the top."""
    if isinstance(part, Both):
        return Both(tuple(Cat((text(before), p, after)) for p in part.parts))
    return Cat((text(before), part, after))


def size(part: Regex) -> int:
    """Characters of the expression when every counted repetition is written out; a measure of its work."""
    match part:
        case Chars():
            return 1
        case Repeat():
            times = max(part.low, 1) if part.high is None else part.high
            return size(part.part) * max(1, times)
        case _:
            return sum(size(p) for p in part.parts) + 1


def to_rust(part: Regex) -> str:
    """The expression in the syntax of llguidance: Rust's, between slashes, ``&`` for intersections."""
    if isinstance(part, Both):
        return " & ".join(f"/{_rust(p)}/" for p in part.parts)
    return f"/{_rust(part)}/"


def _rust(part: Regex) -> str:
    match part:
        case Chars():
            if not part.ranges:
                return "[^\\x{0}-\\x{10ffff}]"
            if len(part.ranges) == 1 and part.ranges[0][0] == part.ranges[0][1]:
                return _point(part.ranges[0][0])
            return "[" + "".join(_span(low, high) for low, high in part.ranges) + "]"
        case Cat():
            return "".join(_rust(p) for p in part.parts) or "(?:)"
        case Alt():
            return "(?:" + "|".join(_rust(p) for p in part.parts) + ")"
        case Repeat():
            return f"(?:{_rust(part.part)}){_times(part.low, part.high)}"
        case Both():
            raise ValueError("an intersection below the top of a terminal")


def _times(low: int, high: int | None) -> str:
    if (low, high) == (0, None):
        return "*"
    if (low, high) == (0, 1):
        return "?"
    return f"{{{low},}}" if high is None else f"{{{low},{high}}}"


def _span(low: int, high: int) -> str:
    return _point(low) if low == high else f"{_point(low)}-{_point(high)}"


def _point(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
