"""Strings and numbers of a flat schema as expressions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gossamer.grammar import formats, numbers, pattern
from gossamer.grammar.automaton import Space
from gossamer.grammar.chars import ANY, DIGIT, Alt, Both, Cat, Regex, Repeat, chars, optional, star, text
from gossamer.grammar.errors import SchemaError
from gossamer.grammar.flat import Flat, Node, kind_of
from gossamer.grammar.numbers import Interval
from gossamer.grammar.pattern import PatternError

MAX_LENGTH = 1_000_000
"""Most characters that a string's bounds may speak of."""
MAX_MULTIPLES = 1000
"""Most multiples between bounds that are listed one by one."""
_FRACTIONS = {2: ("0", "5"), 4: ("0", "25", "5", "75"), 8: ("0", "125", "25", "375", "5", "625", "75", "875")}
_MAX_SUFFIX = 3


class Scalars:
    """Expressions for strings and numbers of flat schemas; ``space`` decides about literal values."""

    def __init__(self, space: Space):
        self._space = space
        self._patterns: dict[str, Regex] = {}

    def string(self, flat: Flat) -> list[Regex]:
        """What a string must match: all of it.

        Raises:
            SchemaError: a pattern or format that cannot be enforced.
        """
        for keyword, bound in (("minLength", flat.min_length), ("maxLength", flat.max_length or 0)):
            if bound > MAX_LENGTH:
                raise SchemaError(flat.path, keyword, f"must be at most {MAX_LENGTH}, got {bound}")
        parts = [self._pattern(source, node) for source, node in flat.patterns]
        parts += [_format(name, node) for name, node in flat.formats]
        if flat.min_length or flat.max_length is not None or not parts:
            parts.append(Repeat(ANY, flat.min_length, flat.max_length))
        return list(dict.fromkeys(parts))

    def number(self, flat: Flat) -> Regex | list[str]:
        """The numbers, as an expression or as a list.

        Raises:
            SchemaError: a multipleOf that cannot be enforced.
        """
        step = _step(flat)
        integer = flat.integer or (step is not None and step.denominator == 1)
        if integer and step is not None and step.denominator != 1:
            raise _no_multiples(flat)
        if step is None or step == 1:
            return self._interval(flat, 0 if integer else numbers.MAX_FRACTION_DIGITS)
        listed = _multiples(flat, step)
        if listed is not None:
            return listed
        if step.denominator == 1:
            return Both((self._interval(flat, 0), _ending(flat, step.numerator)))
        if step.numerator == 1 and step.denominator in _FRACTIONS:
            tail = Alt(tuple(text("." + digits) for digits in _FRACTIONS[step.denominator]))
            dyadic = Cat((optional(chars("-")), Repeat(DIGIT, 1, None), optional(tail)))
            return Both((numbers.between(_interval_of(flat, numbers.MAX_FRACTION_DIGITS)), dyadic))
        raise _no_multiples(flat)

    def fits(self, value: Any, flat: Flat) -> bool:
        """Whether a value without parts meets the schema, lists of values aside."""
        kind = kind_of(value)
        if kind not in flat.kinds:
            return False
        if kind == "string":
            return all(self._space.matches(part, value) for part in self.string(flat))
        return kind != "number" or _number_fits(value, flat)

    def _pattern(self, source: str, node: Node) -> Regex:
        known = self._patterns.get(source)
        if known is None:
            try:
                known = self._patterns[source] = pattern.parse(source)
            except PatternError as error:
                raise SchemaError(node.path, "pattern", str(error)) from None
        return known

    def _interval(self, flat: Flat, fraction: int) -> Regex:
        if flat.low is None and flat.high is None:
            return numbers.unbounded(fraction == 0)
        try:
            return numbers.between(_interval_of(flat, fraction))
        except ValueError as error:
            keyword = next((k for k in ("minimum", "exclusiveMinimum") if flat.having(k)), "maximum")
            raise SchemaError(flat.path, keyword, str(error)) from None


def _interval_of(flat: Flat, fraction: int) -> Interval:
    low, low_open = flat.low or (None, False)
    high, high_open = flat.high or (None, False)
    return Interval(low=low, high=high, low_open=low_open, high_open=high_open, fraction=fraction)


def _format(name: str, node: Node) -> Regex:
    found = formats.regex(name)
    if found is None:
        known = ", ".join(formats.PATTERNS)
        raise SchemaError(node.path, "format", f"{name!r:.40} cannot be enforced; these can: {known}")
    return found


def _step(flat: Flat) -> Fraction | None:
    """The least number that every allowed number is a multiple of."""
    step = None
    for value, _ in flat.multiples:
        one = Fraction(value)
        if step is None:
            step = one
        else:
            top = math.lcm(step.numerator * one.denominator, one.numerator * step.denominator)
            step = Fraction(top, step.denominator * one.denominator)
    if step is not None and flat.integer:
        step = Fraction(math.lcm(step.numerator, step.denominator), step.denominator)
    return step


def _multiples(flat: Flat, step: Fraction) -> list[str] | None:
    """All multiples between the bounds, None if they are too many or without end."""
    if flat.low is None or flat.high is None:
        return None
    first = math.ceil(Fraction(flat.low[0]) / step)
    last = math.floor(Fraction(flat.high[0]) / step)
    if last - first >= MAX_MULTIPLES:
        return None
    return list(_listed(flat, step, first, last))


def _listed(flat: Flat, step: Fraction, first: int, last: int) -> Iterator[str]:
    for factor in range(first, last + 1):
        exact = factor * step
        value = Decimal(exact.numerator) / Decimal(exact.denominator)
        shown = f"{value.normalize() + 0:f}"
        # Checkers divide doubles: a multiple that they take for none is left out.
        if _number_fits(value, flat) and (step.denominator == 1 or float(shown) / float(step) % 1 == 0):
            yield shown


def _ending(flat: Flat, step: int) -> Regex:
    """Multiples of a divisor of 10, 100 or 1000, told by their last digits."""
    length = next((n for n in range(1, _MAX_SUFFIX + 1) if 10**n % step == 0), None)
    if length is None:
        raise _no_multiples(flat)
    ends = Alt(tuple(text(f"{m:0{length}d}") for m in range(0, 10**length, step)))
    short = Alt(tuple(text(str(m)) for m in range(0, 10 ** (length - 1), step)))
    return Cat((optional(chars("-")), Alt((short, Cat((star(DIGIT), ends))))))


def _no_multiples(flat: Flat) -> SchemaError:
    node = flat.multiples[0][1]
    return SchemaError(
        node.path,
        "multipleOf",
        f"cannot be enforced for {node.schema['multipleOf']}; give a minimum and a maximum with at most "
        f"{MAX_MULTIPLES} multiples in between",
    )


def _number_fits(value: Any, flat: Flat) -> bool:
    exact = Fraction(value) if isinstance(value, int | Decimal) else Fraction(repr(value))
    if flat.integer and exact.denominator != 1:
        return False
    if flat.low is not None:
        low = Fraction(flat.low[0])
        if exact < low or (exact == low and flat.low[1]):
            return False
    if flat.high is not None:
        high = Fraction(flat.high[0])
        if exact > high or (exact == high and flat.high[1]):
            return False
    return all((exact / Fraction(m)).denominator == 1 for m, _ in flat.multiples)
