"""MX encode and decode on one thread of the native kernels, where they are built; else `gossamer.mx.codec`.

Equal to `gossamer.mx.naive` bit for bit either way.  The kernels let go of the interpreter's lock, so threads
of the caller can work on parts of a tensor.

Shapes: x [..., n] float32; codes [..., n] uint8; packed [..., n/2] uint8, the even column in the low half;
scales [..., n/32] uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gossamer.kernels import backend
from gossamer.mx import codec
from gossamer.mx.codec import F32, U8, Encoded
from gossamer.mx.formats import BLOCK, FORMATS, Format, MXError, Rule, check_rule, get, scale_increment
from gossamer.mx.pack import pack4, unpack4

_FP4 = FORMATS["mxfp4"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """MXFP4 as checkpoints store it."""

    packed: U8
    """[..., n/2], two codes to a byte."""
    scales: U8
    """[..., n/32], E8M0."""
    rule: Rule


def encode(
    x: npt.ArrayLike,
    fmt: str | Format,
    rule: Rule,
    *,
    name: str | None = None,
    nonfinite: Literal["refuse", "nan"] = "refuse",
    instructions: str | None = None,
) -> Encoded:
    """See `gossamer.mx.encode`.

    Args:
        x: [..., n] floats, n a multiple of 32.
        fmt: A name in `gossamer.mx.formats.FORMATS`.
        rule: The scale rule.
        name: The tensor's name, for the error text.
        nonfinite: "refuse" for weights; "nan" turns a block that holds NaN or Inf into a NaN block.
        instructions: A backend of `gossamer.kernels.backend`; None takes the best that runs here.

    Raises:
        MXError: as `gossamer.mx.encode` does.
        BackendError: the instructions that were asked for are not there.
    """
    f, rule = get(fmt), check_rule(rule)
    native = _native(instructions)
    if native is None:
        return codec.encode(x, f, rule, name=name, nonfinite=nonfinite)
    codes, scales = _encoded(native, x, f, rule, name=name, nonfinite=nonfinite, packed=False)
    return Encoded(codes=codes, scales=scales, fmt=f.name, rule=rule)


def encode4(
    x: npt.ArrayLike,
    rule: Rule,
    *,
    name: str | None = None,
    nonfinite: Literal["refuse", "nan"] = "refuse",
    instructions: str | None = None,
) -> Packed:
    """MXFP4 in the form that checkpoints store; arguments and errors are those of `encode`."""
    rule = check_rule(rule)
    native = _native(instructions)
    if native is None:
        loose = codec.encode(x, _FP4, rule, name=name, nonfinite=nonfinite)
        return Packed(packed=pack4(loose.codes), scales=loose.scales, rule=rule)
    packed, scales = _encoded(native, x, _FP4, rule, name=name, nonfinite=nonfinite, packed=True)
    return Packed(packed=packed, scales=scales, rule=rule)


def decode(
    codes: npt.ArrayLike,
    scales: npt.ArrayLike,
    fmt: str | Format,
    *,
    out: F32 | None = None,
    instructions: str | None = None,
) -> F32:
    """The values [..., n] of codes [..., n] and scales [..., n/32]; see `gossamer.mx.decode`.

    Args:
        codes: One to a byte.
        scales: E8M0; 255 makes its block NaN.
        fmt: A name in `gossamer.mx.formats.FORMATS`.
        out: Where the values go, [..., n] and contiguous; None takes fresh memory, whose first touch may take
            longer than decoding.
        instructions: A backend of `gossamer.kernels.backend`; None takes the best that runs here.

    Raises:
        MXError: as `gossamer.mx.decode` does, or an `out` of another shape or type.
        BackendError: the instructions that were asked for are not there.
    """
    f = get(fmt)
    c, s = codec.check_stored(codes, scales)
    y = _room(out, c.shape)
    native = _native(instructions)
    if native is None:
        y[...] = codec.decode(c, s, f)
        return y
    c, s = np.ascontiguousarray(c), np.ascontiguousarray(s)
    try:
        native.decode(c, s, y, _element(f), codec.element_table(f))
    except ValueError as error:
        raise MXError(f"{f.element}: {error}") from None
    return y


def decode4(
    packed: npt.ArrayLike,
    scales: npt.ArrayLike,
    *,
    out: F32 | None = None,
    instructions: str | None = None,
) -> F32:
    """The values [..., n] of packed MXFP4 codes [..., n/2]; arguments and errors are those of `decode`."""
    p, s = np.asarray(packed), np.asarray(scales)
    if p.dtype != np.uint8 or s.dtype != np.uint8:
        raise MXError(f"packed codes and scales must be uint8, got {p.dtype} and {s.dtype}")
    if p.ndim == 0 or p.shape[-1] % (BLOCK // 2) or s.shape != (*p.shape[:-1], p.shape[-1] // (BLOCK // 2)):
        raise MXError(f"packed codes {p.shape} need scales of shape [..., n/{BLOCK}], got {s.shape}")
    y = _room(out, (*p.shape[:-1], 2 * p.shape[-1]))
    native = _native(instructions)
    if native is None:
        y[...] = codec.decode(unpack4(p), s, _FP4)
        return y
    p, s = np.ascontiguousarray(p), np.ascontiguousarray(s)
    native.decode_packed(p, s, y, codec.element_table(_FP4))
    return y


def _encoded(
    native: Any, x: npt.ArrayLike, f: Format, rule: Rule, *, name: str | None, nonfinite: str, packed: bool
) -> tuple[U8, U8]:
    """Codes, packed or not, and scales."""
    blocks, shape = codec.blocks_of(x, name)
    codes = np.empty((*shape[:-1], shape[-1] // 2) if packed else shape, np.uint8)
    scales = np.empty((*shape[:-1], shape[-1] // BLOCK), np.uint8)
    native.encode(blocks, codes, scales, _element(f), scale_increment(f, rule), packed)
    if nonfinite == "refuse":
        codec.refuse_nonfinite(blocks, scales.reshape(-1), shape, name)
    return codes, scales


def _native(instructions: str | None) -> Any:
    """The kernels, or None where none are built and none were asked for."""
    if instructions is None and not backend.available():
        return None
    module: Any = backend.load(instructions)
    return module.mx


def _element(f: Format) -> tuple[int, int, int, int, int]:
    """What native/mx/codec.h calls an element."""
    return f.bits, f.mantissa_bits, f.bias, f.emax, f.max_code


def _room(out: F32 | None, shape: tuple[int, ...]) -> F32:
    if out is None:
        return np.empty(shape, np.float32)
    if out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous:
        raise MXError(
            f"out must be contiguous float32 of shape {shape}, got {out.dtype} of shape {out.shape}"
            f"{'' if out.flags.c_contiguous else ', not contiguous'}"
        )
    return out
