"""MX encode and decode as plain loops over Python floats: the definition the fast paths are held to.

Every float32 and every scaling by a power of two is exact in a Python float, so this file has no rounding but
the one it means to do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from gossamer.mx.formats import BLOCK, SCALE_BIAS, SCALE_NAN, Format, MXError, Rule, check_rule, get


def element_value(code: int, fmt: str | Format) -> float:
    """The value of one element code, before scaling (OCP MX v1.0, element tables)."""
    f = get(fmt)
    if not 0 <= code < 1 << f.bits:
        raise MXError(f"{f.element} code {code} is outside 0..{(1 << f.bits) - 1}")
    sign = -1.0 if code & f.sign_mask else 1.0
    magnitude = code & (f.sign_mask - 1)
    field, mantissa = magnitude >> f.mantissa_bits, magnitude & ((1 << f.mantissa_bits) - 1)
    if f.element == "E4M3" and magnitude == 0x7F:
        return math.nan
    if f.element == "E5M2" and field == 0x1F:
        return math.nan if mantissa else sign * math.inf
    if field == 0:
        return sign * math.ldexp(mantissa, f.emin - f.mantissa_bits)
    return sign * math.ldexp((1 << f.mantissa_bits) + mantissa, field - f.bias - f.mantissa_bits)


@functools.cache
def finite_magnitudes(fmt: Format) -> tuple[float, ...]:
    """The values of codes 0, 1, ... up to max_normal; Inf and NaN codes come after them."""
    values = [element_value(code, fmt) for code in range(fmt.sign_mask)]
    return tuple(values[: values.index(fmt.max_normal) + 1])


def scale_value(byte: int) -> float:
    """The value of one E8M0 scale byte."""
    if not 0 <= byte <= 0xFF:
        raise MXError(f"E8M0 scale {byte} is outside 0..255")
    return math.nan if byte == SCALE_NAN else math.ldexp(1.0, byte - SCALE_BIAS)


def scale_byte(amax: float, fmt: str | Format, rule: Rule) -> int:
    """The E8M0 byte for a block whose largest magnitude is ``amax`` (finite, >= 0).

    floor: 2^floor(log2 amax) lands on 2^emax.  even: the same, after amax was rounded to the element's
    mantissa width.  rceil: the smallest scale under which amax does not exceed max_normal.
    """
    f, rule = get(fmt), check_rule(rule)
    if amax == 0.0:
        return 0
    fraction, exponent = math.frexp(amax)  # amax = significand * 2^floor_log2 with significand in [1, 2)
    significand, floor_log2 = 2.0 * fraction, exponent - 1
    if rule == "even":
        rounded = math.floor(math.ldexp(significand, f.mantissa_bits) + 0.5)
        floor_log2 += rounded >> (f.mantissa_bits + 1)
    elif rule == "rceil" and significand > math.ldexp(f.max_normal, -f.emax):
        floor_log2 += 1
    return min(max(floor_log2 - f.emax + SCALE_BIAS, 0), f.max_scale_byte)


def round_element(value: float, fmt: str | Format) -> int:
    """The nearest code; ties go to the even one, what is too large saturates, the sign is kept."""
    f = get(fmt)
    sign = f.sign_mask if math.copysign(1.0, value) < 0 else 0
    magnitude = min(abs(value), f.max_normal)
    best, best_distance = 0, math.inf
    for code, grid in enumerate(finite_magnitudes(f)):
        distance = abs(grid - magnitude)
        if distance < best_distance or (distance == best_distance and code % 2 == 0):
            best, best_distance = code, distance
    return sign | best


def encode_block(block: Sequence[float], fmt: str | Format, rule: Rule) -> tuple[list[int], int]:
    """Codes and scale byte of one block of 32 finite values."""
    if len(block) != BLOCK:
        raise MXError(f"a block has {BLOCK} values, got {len(block)}")
    if not all(math.isfinite(v) for v in block):
        raise MXError("a block holds NaN or Inf")
    byte = scale_byte(max(abs(v) for v in block), fmt, rule)
    return [round_element(math.ldexp(v, SCALE_BIAS - byte), fmt) for v in block], byte


def decode_block(codes: Sequence[int], byte: int, fmt: str | Format) -> list[float]:
    """The 32 values of one block; all NaN under a NaN scale."""
    scale = scale_value(byte)
    return [element_value(code, fmt) * scale for code in codes]
