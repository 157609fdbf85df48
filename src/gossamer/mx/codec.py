"""MX encode and decode in numpy.

Shapes: x [..., n] float32; codes [..., n] uint8, one element in the low bits of each byte;
scales [..., n/32] uint8.
Equal to `gossamer.mx.naive` bit for bit.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gossamer.mx.formats import (
    BLOCK,
    SCALE_BIAS,
    SCALE_NAN,
    Format,
    MXError,
    Rule,
    check_rule,
    get,
    scale_increment,
)

# Blocks handled at a time: the temporaries of one chunk stay in the second-level cache.
_CHUNK = 512
_INF = np.uint32(0x7F80_0000)
_ABS = np.uint32(0x7FFF_FFFF)

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """Codes and scales with what is needed to read and to reproduce them."""

    codes: U8
    """[..., n], one element code per byte."""
    scales: U8
    """[..., n/32], E8M0."""
    fmt: str
    rule: Rule

    def decode(self) -> F32:
        """The values [..., n]."""
        return decode(self.codes, self.scales, self.fmt)


def encode(
    x: npt.ArrayLike,
    fmt: str | Format,
    rule: Rule,
    *,
    name: str | None = None,
    nonfinite: Literal["refuse", "nan"] = "refuse",
) -> Encoded:
    """Encode the last dimension of ``x`` in blocks of 32.

    Args:
        x: [..., n] floats, n a multiple of 32.  Wider types are first rounded to float32.
        fmt: a name in `gossamer.mx.formats.FORMATS`.
        rule: the scale rule; checkpoints use "even".
        name: the tensor's name, for the error text.
        nonfinite: "refuse" for weights; "nan" turns a block that holds NaN or Inf into a NaN block.

    Raises:
        MXError: for an unknown format or rule, a length that is no multiple of 32, values that are not
            floats, and, with "refuse", NaN or Inf.
    """
    f, rule = get(fmt), check_rule(rule)
    blocks, shape = blocks_of(x, name)
    codes = np.empty(blocks.shape, np.uint8)
    scales = np.empty(len(blocks), np.uint8)
    for start in range(0, len(blocks), _CHUNK):
        part = slice(start, start + _CHUNK)
        _encode_chunk(blocks[part], f, rule, codes[part], scales[part])
    if nonfinite == "refuse":
        refuse_nonfinite(blocks, scales, shape, name)
    return Encoded(
        codes=codes.reshape(shape),
        scales=scales.reshape(*shape[:-1], shape[-1] // BLOCK),
        fmt=f.name,
        rule=rule,
    )


def blocks_of(x: npt.ArrayLike, name: str | None) -> tuple[F32, tuple[int, ...]]:
    """What an encoder reads: the blocks [blocks, 32] of x [..., n] in float32, and the shape of x.

    Raises:
        MXError: for a length that is no multiple of 32 and for values that are not floats.
    """
    source = np.asarray(x)
    if source.dtype.kind != "f":
        raise MXError(f"{_label(name)} has dtype {source.dtype}; MX encoding takes floats")
    if source.ndim == 0 or source.shape[-1] % BLOCK:
        raise MXError(
            f"{_label(name)} has shape {source.shape}; the last dimension must be a multiple of {BLOCK}"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(source, dtype=np.float32).reshape(-1, BLOCK), source.shape


def refuse_nonfinite(blocks: F32, scales: U8, shape: tuple[int, ...], name: str | None) -> None:
    """Refuse blocks [blocks, 32] of an array of that shape if an encoder gave one a NaN scale.

    Raises:
        MXError: naming the array, the first value that is not finite and its place.
    """
    bad = scales == SCALE_NAN
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    offset = first * BLOCK + int(np.flatnonzero(~np.isfinite(blocks[first]))[0])
    where = tuple(int(i) for i in np.unravel_index(offset, shape))
    raise MXError(
        f"{_label(name)} holds {blocks.reshape(-1)[offset]} at {where} and "
        f"{int(bad.sum())} block(s) with NaN or Inf; weights must be finite"
    )


def _label(name: str | None) -> str:
    return f"tensor {name!r}" if name else "the array"


def _encode_chunk(x: F32, f: Format, rule: Rule, codes: U8, scales: U8) -> None:
    bits = x.view(np.uint32)
    magnitude = bits & _ABS  # float32 bits order like the magnitudes they stand for
    amax = _block_max(magnitude)
    exponent = ((amax + np.uint32(scale_increment(f, rule))) >> np.uint32(23)).astype(np.int32) - f.emax
    byte = np.clip(exponent, 0, f.max_scale_byte)
    # 2^(127 - byte) is a normal float32 for every byte an encoder writes, so this product is exact unless it
    # falls so far below the element's smallest step that it rounds to zero anyway.
    inverse = ((2 * SCALE_BIAS - byte).astype(np.uint32) << np.uint32(23)).view(np.float32)
    finite = amax < _INF
    if not finite.all():
        magnitude[~finite] = 0
        byte[~finite] = SCALE_NAN
    scales[:] = byte
    y = magnitude.view(np.float32)
    y *= inverse[:, None]
    np.minimum(y, np.float32(f.max_normal), out=y)
    # Adding 2^(23 - m + e), e the exponent of y but at least emin, makes the adder round y to nearest even at
    # the element's last bit, and leaves the significand as an integer in the low bits of the sum.
    low = np.uint32((f.emin + 127) << 23)
    anchor = y.view(np.uint32) & _INF
    np.maximum(anchor, low, out=anchor)
    steps = (anchor - low) >> np.uint32(23 - f.mantissa_bits)
    anchor += np.uint32((23 - f.mantissa_bits) << 23)
    y += anchor.view(np.float32)
    out = y.view(np.uint32)
    out -= anchor
    out += steps
    np.bitwise_and(bits, np.uint32(0x8000_0000), out=anchor)
    anchor >>= np.uint32(32 - f.bits)
    if not finite.all():
        anchor[~finite] = 0
    out |= anchor
    codes[:] = out


def _block_max(magnitude: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    half = magnitude
    while half.shape[1] > 1:
        middle = half.shape[1] // 2
        half = np.maximum(half[:, :middle], half[:, middle:])
    return half[:, 0]


def decode(codes: npt.ArrayLike, scales: npt.ArrayLike, fmt: str | Format) -> F32:
    """The float32 values [..., n] of codes [..., n] and scales [..., n/32].

    Exact for every code and scale whose product a float32 can hold.  A NaN scale (0xFF) gives a NaN block.

    Raises:
        MXError: for codes or scales that are not uint8, shapes that do not belong together, or codes with
            bits above the element's width.
    """
    f = get(fmt)
    c, s = check_stored(codes, scales)
    if f.bits < 8 and c.size and int(c.max()) >> f.bits:
        raise MXError(f"code {int(c.max())} has more than the {f.bits} bits of {f.element}")
    values = element_table(f).take(c).reshape(-1, BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):
        values *= scale_table().take(s).reshape(-1, 1)
    return values.reshape(c.shape)


def check_stored(codes: npt.ArrayLike, scales: npt.ArrayLike) -> tuple[U8, U8]:
    """Both as arrays, if codes [..., n] and scales [..., n/32] belong together.

    Raises:
        MXError: for arrays that are not uint8 and for shapes that do not fit.
    """
    c, s = np.asarray(codes), np.asarray(scales)
    if c.dtype != np.uint8 or s.dtype != np.uint8:
        raise MXError(f"codes and scales must be uint8, got {c.dtype} and {s.dtype}")
    if c.ndim == 0 or c.shape[-1] % BLOCK or s.shape != (*c.shape[:-1], c.shape[-1] // BLOCK):
        raise MXError(f"codes {c.shape} need scales of shape [..., n/{BLOCK}], got {s.shape}")
    return c, s


@functools.cache
def element_table(fmt: Format) -> F32:
    """The value of every code, [2^bits] float32, read-only."""
    code = np.arange(1 << fmt.bits, dtype=np.uint32)
    magnitude = code & np.uint32(fmt.sign_mask - 1)
    # In a float32's bits an element is itself times 2^(bias - 127), its subnormals included.
    bits = magnitude << np.uint32(23 - fmt.mantissa_bits)
    values = np.ldexp(bits.view(np.float32), 127 - fmt.bias).astype(np.float32)
    if fmt.element == "E4M3":
        values[magnitude == 0x7F] = np.nan
    if fmt.element == "E5M2":
        values[magnitude == 0x7C] = np.inf
        values[magnitude > 0x7C] = np.nan
    values[code >= fmt.sign_mask] *= np.float32(-1)
    values.flags.writeable = False
    return values


@functools.cache
def scale_table() -> F32:
    """The value of every E8M0 byte, [256] float32, read-only; entry 255 is NaN."""
    exponents = np.arange(256) - SCALE_BIAS
    values = np.ldexp(np.float32(1), np.minimum(exponents, SCALE_BIAS)).astype(np.float32)
    values[SCALE_NAN] = np.nan
    values.flags.writeable = False
    return values


def check_scales(scales: npt.ArrayLike, *, name: str) -> None:
    """Refuse NaN scale bytes in a weight.

    Raises:
        MXError: naming the tensor and the first 0xFF.
    """
    s = np.asarray(scales)
    bad = np.argwhere(s == SCALE_NAN)
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise MXError(f"tensor {name!r} has {len(bad)} NaN scale byte(s) (0xFF), the first at {where}")
