"""The OCP Microscaling (MX) formats this project knows, and the three scale rules.

An MX block is 32 consecutive values of the last dimension that share one E8M0 scale byte ``s``,
worth 2^(s - 127); 0xFF is NaN.  An element is ``sign | exponent | mantissa`` with subnormals:

    exponent field 0:   mantissa * 2^(1 - bias - mantissa_bits)
    otherwise:          (1 + mantissa / 2^mantissa_bits) * 2^(field - bias)

Source: OCP Microscaling Formats specification v1.0.  The choices it leaves open, and where other
implementations differ, are in docs/decisions/0001-mx-rules.md.  This file needs no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from gossamer.errors import GossamerError

BLOCK: Final = 32
SCALE_BIAS: Final = 127
SCALE_NAN: Final = 0xFF

Rule = Literal["floor", "even", "rceil"]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)


class MXError(GossamerError, ValueError):
    """Values, shapes or names that an MX format cannot hold."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One element format; every member is a fact of the OCP text."""

    name: str
    element: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_normal: float
    """Largest finite magnitude; larger values saturate to it."""

    @property
    def bits(self) -> int:
        """Bits of one element, sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bits_per_value(self) -> float:
        """Storage per value, the shared scale included."""
        return self.bits + 8 / BLOCK

    @property
    def emax(self) -> int:
        """Exponent of the largest normal value."""
        reserved = 1 if self.element == "E5M2" else 0  # E5M2 keeps the top exponent for Inf and NaN
        return (1 << self.exponent_bits) - 1 - reserved - self.bias

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return 1 - self.bias

    @property
    def sign_mask(self) -> int:
        """The sign bit of a code."""
        return 1 << (self.bits - 1)

    @property
    def max_code(self) -> int:
        """The code of max_normal."""
        fraction = self.max_normal / 2.0**self.emax - 1.0
        return (self.emax + self.bias << self.mantissa_bits) + int(fraction * (1 << self.mantissa_bits))

    @property
    def max_scale_byte(self) -> int:
        """Largest scale byte an encoder writes: max_normal times it is still a finite float32."""
        return SCALE_BIAS + 127 - self.emax


_ALL = (
    Format(name="mxfp4", element="E2M1", exponent_bits=2, mantissa_bits=1, bias=1, max_normal=6.0),
    Format(name="mxfp6_e2m3", element="E2M3", exponent_bits=2, mantissa_bits=3, bias=1, max_normal=7.5),
    Format(name="mxfp6_e3m2", element="E3M2", exponent_bits=3, mantissa_bits=2, bias=3, max_normal=28.0),
    Format(name="mxfp8_e4m3", element="E4M3", exponent_bits=4, mantissa_bits=3, bias=7, max_normal=448.0),
    Format(name="mxfp8_e5m2", element="E5M2", exponent_bits=5, mantissa_bits=2, bias=15, max_normal=57344.0),
)
FORMATS: Final[dict[str, Format]] = {f.name: f for f in _ALL}


def get(fmt: str | Format) -> Format:
    """The format of that name.

    Raises:
        MXError: for a name that is not in ``FORMATS``.
    """
    if isinstance(fmt, Format):
        return fmt
    try:
        return FORMATS[fmt]
    except (KeyError, TypeError):
        raise MXError(f"unknown MX format {fmt!r}; choose one of {', '.join(FORMATS)}") from None


def check_rule(rule: str) -> Rule:
    """Return ``rule`` if it is one of ``RULES``.

    Raises:
        MXError: otherwise.
    """
    if rule not in RULES:
        raise MXError(f"unknown scale rule {rule!r}; choose one of {', '.join(RULES)}")
    return rule  # type: ignore[return-value]


def scale_increment(fmt: Format, rule: Rule) -> int:
    """What a rule adds to the bits of a block's float32 amax before its exponent is read.

    With bits b = amax as uint32, the scale byte is ``((b + increment) >> 23) - emax``, kept within
    0..max_scale_byte.  FLOOR adds nothing; EVEN adds half a unit of the element's last mantissa bit, so that
    amax is rounded to the element's precision first; RCEIL adds just so much that every mantissa above the
    one of max_normal carries, which makes it ceil(log2(amax / max_normal)).
    """
    if rule == "floor":
        return 0
    if rule == "even":
        return 1 << (22 - fmt.mantissa_bits)
    mantissa = fmt.max_normal / 2.0**fmt.emax - 1.0
    return (1 << 23) - 1 - int(mantissa * (1 << 23))
