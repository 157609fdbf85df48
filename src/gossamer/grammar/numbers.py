"""Decimal numbers between bounds, as expressions over their digits.

Beyond 15 significant digits two decimals can be the same double, and a bound could be met by the one and
missed by the other; so numbers with bounds have no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from gossamer.grammar.chars import DIGIT, EPSILON, NOTHING, Alt, Cat, Regex, Repeat, chars, optional, text

MAX_INTEGER_DIGITS = 40
"""Digits of a number without bounds: far more than a double resolves, and still no loop."""
MAX_FRACTION_DIGITS = 20
EXACT_DIGITS = 15
MAX_BOUND_DIGITS = 60


@dataclass(frozen=True, kw_only=True)
class Interval:
    """From ``low`` to ``high``, None being without end; ``fraction`` is the most decimals, 0 for integers."""

    low: Decimal | None = None
    high: Decimal | None = None
    low_open: bool = False
    high_open: bool = False
    fraction: int = 0


def unbounded(integer: bool) -> Regex:
    """Any integer, or any number with fraction and exponent."""
    whole = Alt((text("0"), Cat((chars("123456789"), Repeat(DIGIT, 0, MAX_INTEGER_DIGITS - 1)))))
    if integer:
        return Alt((text("0"), Cat((optional(chars("-")), _leading(0, MAX_INTEGER_DIGITS - 1)))))
    fraction = optional(Cat((chars("."), Repeat(DIGIT, 1, MAX_FRACTION_DIGITS))))
    exponent = optional(Cat((chars("eE"), optional(chars("+-")), Repeat(DIGIT, 1, 2))))
    return Cat((optional(chars("-")), whole, fraction, exponent))


def between(span: Interval) -> Regex:
    """The numbers of an interval in plain notation, without needless zeros in front; or `NOTHING`.

    Raises:
        ValueError: a bound of more than 60 digits.
    """
    for bound in (span.low, span.high):
        if bound is not None and bound and abs(bound.adjusted()) > MAX_BOUND_DIGITS:
            raise ValueError(f"has a bound with more than {MAX_BOUND_DIGITS} digits")
    zero = Decimal(0)
    parts: list[Regex] = []
    if span.high is None or span.high > zero or (span.high == zero and not span.high_open):
        low = span.low if span.low is not None and span.low > zero else zero
        low_open = span.low_open and span.low == low
        parts.append(_positive(low, span.high, low_open, span.high_open, span.fraction))
    if span.low is None or span.low < zero:
        # Mirrored: what is nearest to zero comes first.
        low = -span.high if span.high is not None and span.high < zero else zero
        low_open = span.high_open if low > zero else True
        high = None if span.low is None else -span.low
        mirrored = _positive(low, high, low_open, span.low_open, span.fraction)
        if mirrored != NOTHING:
            parts.append(Cat((chars("-"), mirrored)))
    return _any([p for p in parts if p != NOTHING])


def _positive(low: Decimal, high: Decimal | None, low_open: bool, high_open: bool, fraction: int) -> Regex:
    low_digits, low_point = _digits(low)
    high_digits, high_point = ("", 0) if high is None else _digits(high)
    needed = max(len(low_digits) - low_point, len(high_digits) - high_point)
    longest = high_point
    if high is None:
        longest = max(MAX_INTEGER_DIGITS if fraction == 0 else EXACT_DIGITS, low_point + 1)
    parts: list[Regex] = []
    for length in range(max(1, low_point), longest + 1):
        tight_low, tight_high = length == low_point, high is not None and length == high_point
        decimals = min(fraction, max(EXACT_DIGITS - length, needed if tight_low or tight_high else 0))
        if not tight_low and not tight_high and decimals == 0:
            # No more decimals from here on: one expression for all these lengths.
            last = longest - 1 if high is not None else longest
            parts.append(_leading(length - 1, last - 1))
            if high is not None:
                walk = _Walk(
                    length=longest, high=high_digits, high_open=high_open, fraction=min(fraction, needed)
                )
                parts.append(walk.all())
            break
        walk = _Walk(
            length=length,
            low=low_digits if tight_low else None,
            high=high_digits if tight_high else None,
            low_open=low_open,
            high_open=high_open,
            fraction=decimals,
        )
        parts.append(walk.all())
    return _any([p for p in parts if p != NOTHING])


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """Numbers with ``length`` digits before the point, between digit strings that are padded with zeros."""

    length: int
    low: str | None = None
    high: str | None = None
    low_open: bool = False
    high_open: bool = False
    fraction: int = 0

    def all(self) -> Regex:
        return self._from(0, self.low is not None, self.high is not None)

    def _from(self, at: int, tight_low: bool, tight_high: bool) -> Regex:
        if not tight_low and not tight_high:
            return self._free(at)
        parts: list[Regex] = []
        if at >= self.length and self._may_end(at, tight_low, tight_high):
            parts.append(EPSILON)
        if at < self.length + self.fraction:
            point = chars(".") if at == self.length else EPSILON
            more = self._digit(at, tight_low, tight_high)
            if more != NOTHING:
                parts.append(Cat((point, more)))
        return _any(parts)

    def _digit(self, at: int, tight_low: bool, tight_high: bool) -> Regex:
        first = _digit_at(self.low, at) if tight_low else 0
        last = _digit_at(self.high, at) if tight_high else 9
        if at == 0 and self.length > 1:
            first = max(first, 1)
        parts: list[Regex] = []
        for digit in sorted({first, last}):
            if not first <= digit <= last:
                continue
            on_low = tight_low and digit == _digit_at(self.low, at)
            on_high = tight_high and digit == _digit_at(self.high, at)
            rest = self._from(at + 1, on_low, on_high)
            if rest != NOTHING:
                parts.append(Cat((chars(str(digit)), rest)))
        if last - first > 1:
            middle = chars((0x31 + first, 0x2F + last))
            parts.append(Cat((middle, self._free(at + 1))))
        return _any(parts)

    def _may_end(self, at: int, tight_low: bool, tight_high: bool) -> bool:
        """Whether a number that equals the tight bounds so far is inside if it ends here."""
        if tight_low:
            rest = (self.low or "")[at:].strip("0")
            if rest or self.low_open:
                return False
        return not (tight_high and self.high_open and not (self.high or "")[at:].strip("0"))

    def _free(self, at: int) -> Regex:
        if at == 0 and self.length > 1:
            return Cat((_leading(self.length - 1, self.length - 1), _tail(self.fraction)))
        if at < self.length:
            return Cat((Repeat(DIGIT, self.length - at, self.length - at), _tail(self.fraction)))
        left = self.length + self.fraction - at
        return Repeat(DIGIT, 0, left) if at > self.length else _tail(self.fraction)


def _leading(low: int, high: int) -> Regex:
    """A digit from 1 and then ``low`` to ``high`` of any."""
    return Cat((chars("123456789"), Repeat(DIGIT, low, high)))


@cache
def _tail(fraction: int) -> Regex:
    return optional(Cat((chars("."), Repeat(DIGIT, 1, fraction)))) if fraction else EPSILON


def _digit_at(digits: str | None, at: int) -> int:
    return int(digits[at]) if digits is not None and at < len(digits) else 0


def _digits(value: Decimal) -> tuple[str, int]:
    """The digits, and how many of them stand before the point."""
    whole, _, fraction = f"{value:f}".partition(".")
    return whole + fraction.rstrip("0"), len(whole)


def _any(parts: list[Regex]) -> Regex:
    return (parts[0] if len(parts) == 1 else Alt(tuple(parts))) if parts else NOTHING
