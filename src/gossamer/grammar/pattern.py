r"""ECMA regular expressions, as JSON Schema's ``pattern`` has them, as values.

Classes mean what every common dialect agrees on, so that a text is right whoever checks it: ``\d`` and
``\w`` are ASCII, ``\D`` and ``\W`` leave out every digit and word character of Unicode.
"""

from __future__ import annotations

import unicodedata
from functools import cache

from gossamer.grammar.chars import (
    ANY,
    DIGIT,
    MAX_CHAR,
    Alt,
    Cat,
    Chars,
    Regex,
    Repeat,
    chars,
    minus,
    negated,
    size,
    star,
)

MAX_PATTERN_CHARS = 500
MAX_DEPTH = 30
MAX_REPEAT = 2000
MAX_SIZE = 4000
"""Characters of a pattern with its counted repetitions written out."""

_WORD = chars((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), "_")
_SPACE = chars(" \t\n\r\f\v")
_ALL_SPACES = chars(
    " \t\n\r\f\v\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff", (0x2000, 0x200A)
)
_DOT = minus(ANY, chars("\n\r\u2028\u2029"))
_LAST_SCRIPT = 0x1FFFF
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


class PatternError(ValueError):
    """A pattern that cannot be enforced; the text says which part of it."""


def parse(pattern: str) -> Regex:
    """The texts that the pattern is found in.

    Raises:
        PatternError: not a regular expression, or beyond what is supported.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternError(f"has {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are supported")
    found = _Parser(pattern).search()
    if size(found) > MAX_SIZE:
        raise PatternError(f"repeats too much: written out it takes more than {MAX_SIZE} characters")
    return found


class _Parser:
    def __init__(self, pattern: str):
        self._text = pattern
        self._at = 0
        self._depth = 0

    def search(self) -> Regex:
        """The whole pattern; each alternative may be anchored on either side."""
        parts = [self._anchored()]
        while self._take("|"):
            parts.append(self._anchored())
        if self._at < len(self._text):
            raise PatternError(f"has a stray {self._text[self._at]!r} at character {self._at}")
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _anchored(self) -> Regex:
        begin = self._at
        starts = self._take("^")
        body = self._sequence()
        ends = self._take("$")
        if not starts and not ends and self._at == begin:
            return star(ANY)
        before = () if starts else (star(ANY),)
        after = () if ends else (star(ANY),)
        return Cat((*before, body, *after))

    def _alternatives(self) -> Regex:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alt(tuple(parts))

    def _sequence(self) -> Regex:
        parts: list[Regex] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._text[self._at] == "$" and (
                self._at + 1 == len(self._text) or (self._depth == 0 and self._text[self._at + 1] == "|")
            ):
                break
            parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else Cat(tuple(parts))

    def _quantified(self) -> Regex:
        atom = self._atom()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "*+?":
                self._at += 1
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            elif char == "{" and (bounds := self._bounds()) is not None:
                low, high = bounds
            else:
                break
            # Lazy or greedy: the texts are the same.
            self._take("?")
            atom = Repeat(atom, low, high)
            if self._at < len(self._text) and self._text[self._at] in "*+?":
                raise PatternError(f"has nothing to repeat at character {self._at}")
        return atom

    def _bounds(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        if end < 0:
            return None
        first, comma, second = self._text[self._at + 1 : end].partition(",")
        if not _number(first) or (second and not _number(second)):
            return None
        self._at = end + 1
        low = int(first)
        high = (int(second) if second else None) if comma else low
        if max(low, high or 0) > MAX_REPEAT:
            raise PatternError(f"repeats more than {MAX_REPEAT} times")
        if high is not None and low > high:
            raise PatternError(f"has bounds in the wrong order: {{{low},{high}}}")
        return low, high

    def _atom(self) -> Regex:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _DOT
            case "\\":
                return self._escape()
            case "^" | "$":
                raise PatternError(f"has {char!r} inside; it is supported at the ends of an alternative only")
            case "*" | "+" | "?":
                raise PatternError(f"has nothing to repeat at character {self._at - 1}")
            case _:
                return chars(_usable(char))

    def _group(self) -> Regex:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PatternError(f"nests more than {MAX_DEPTH} groups")
        if self._take("?"):
            kind = self._next()
            if kind == "<" and self._peek() not in "=!":
                end = self._text.find(">", self._at)
                if end < 0:
                    raise PatternError("has a group name without an end")
                self._at = end + 1
            elif kind != ":":
                raise PatternError("has a look-around or a flag, which are not supported")
        body = self._alternatives()
        if not self._take(")"):
            raise PatternError("has a group without an end")
        self._depth -= 1
        return body

    def _escape(self, *, excluded: bool = False) -> Chars:
        char = self._next()
        if char in "dwsDWS":
            return _anyones(char) if excluded else _class_of(char)
        if char in "pP":
            raise PatternError(f"has \\{char}, a Unicode property, which is not supported")
        if char in "bB":
            raise PatternError(f"has \\{char}, a word boundary, which is not supported")
        return chars(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The one character of an escape."""
        if char == "0" and self._peek().isdigit():
            raise PatternError("has an octal escape, which is not supported")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in "xu":
            return self._hex(4 if char == "u" else 2)
        if char == "c" and self._peek().isascii() and self._peek().isalpha():
            return chr(ord(self._next()) % 32)
        if char.isdigit() or char == "k":
            raise PatternError("has a back-reference, which is not supported")
        if char.isalpha():
            raise PatternError(f"has the unknown escape \\{char}")
        return _usable(char)

    def _hex(self, length: int) -> str:
        if length == 4 and self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : end] if end >= 0 else ""
            self._at = end + 1
        else:
            digits = self._text[self._at : self._at + length]
            self._at += length
            if len(digits) != length:
                digits = ""
        try:
            code = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            code = -1
        if not 0 <= code <= MAX_CHAR:
            raise PatternError("has an escape that is not a code point")
        return _usable(chr(code))

    def _class(self) -> Chars:
        negative = self._take("^")
        spans: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._member(excluded=negative)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._member(excluded=negative)
                low, high = _single(first), _single(last)
                if low > high:
                    raise PatternError(f"has a range in the wrong order: {chr(low)}-{chr(high)}")
                spans.append((low, high))
            else:
                spans += first.ranges
        found = minus(chars(*spans), chars((0xD800, 0xDFFF)))
        return negated(found) if negative else found

    def _member(self, *, excluded: bool) -> Chars:
        char = self._next()
        if char != "\\":
            return chars(_usable(char))
        if self._peek() == "b":
            self._at += 1
            return chars("\b")
        return self._escape(excluded=excluded)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, char: str) -> bool:
        if self._text.startswith(char, self._at):
            self._at += 1
            return True
        return False


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _usable(char: str) -> str:
    if "\ud800" <= char <= "\udfff":
        raise PatternError("has half a surrogate pair; write the character itself or \\u{...}")
    return char


def _single(part: Chars) -> int:
    if len(part.ranges) != 1 or part.ranges[0][0] != part.ranges[0][1]:
        raise PatternError("has a class as the end of a range")
    return part.ranges[0][0]


def _class_of(char: str) -> Chars:
    """Characters that are in the class by everyone's count: validators differ on what is beyond ASCII."""
    match char:
        case "d":
            return DIGIT
        case "w":
            return _WORD
        case "s":
            return _SPACE
        case "S":
            return minus(ANY, _ALL_SPACES)
        case _:
            return _complement(char)


def _anyones(char: str) -> Chars:
    """Characters that are in the class by anyone's count: what a negated class must leave out."""
    opposite = char.upper() if char.islower() else char.lower()
    return minus(ANY, _class_of(opposite))


@cache
def _complement(char: str) -> Chars:
    """Characters that are neither digits (``D``) nor word characters (``W``) by anyone's count."""
    categories = ("Nd",) if char == "D" else ("L", "N", "M", "Pc")
    spans: list[tuple[int, int]] = []
    start = None
    for code in range(_LAST_SCRIPT + 2):
        inside = code <= _LAST_SCRIPT and unicodedata.category(chr(code)).startswith(categories)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            spans.append((start, code - 1))
            start = None
    if char == "W":
        # Ideographs, which are word characters, and what is not assigned.
        spans.append((_LAST_SCRIPT + 1, MAX_CHAR))
    return minus(ANY, chars(*spans))
