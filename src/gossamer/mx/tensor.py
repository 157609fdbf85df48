"""The torch part of the MX formats: decoding packed experts, and fake quantisation for training.

Shapes: packed [..., n/2] uint8, scale [..., n/32] uint8, values [..., n].
Equal to `gossamer.mx.codec` bit for bit.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.mx.codec import element_table, scale_table
from gossamer.mx.formats import (
    BLOCK,
    FORMATS,
    SCALE_BIAS,
    Format,
    MXError,
    Rule,
    check_rule,
    get,
    scale_increment,
)

_ABS = 0x7FFF_FFFF
_INF = 0x7F80_0000


def decode4(packed: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values [..., n] of packed MXFP4 codes [..., n/2] and E8M0 scales [..., n/32].

    Exact in float32 and bfloat16; other types are rounded from float32.  A NaN scale gives a NaN block.

    Raises:
        MXError: for tensors that are not uint8 or whose shapes do not belong together.
    """
    if packed.dtype != torch.uint8 or scale.dtype != torch.uint8:
        raise MXError(f"packed codes and scales must be uint8, got {packed.dtype} and {scale.dtype}")
    if (
        packed.dim() == 0
        or packed.shape[-1] * 2 != scale.shape[-1] * BLOCK
        or packed.shape[:-1] != scale.shape[:-1]
    ):
        raise MXError(
            f"packed {tuple(packed.shape)} needs one scale per {BLOCK} values, got {tuple(scale.shape)}"
        )
    work = dtype if dtype in (torch.float32, torch.bfloat16) else torch.float32
    # A byte looks up both of its values at once: a pair of floats travels as one integer of twice the width.
    pair = torch.int64 if work == torch.float32 else torch.int32
    pairs = _constant(_nibble_pairs(), packed.device, work).view(pair).squeeze(1)
    values = pairs.index_select(0, packed.reshape(-1).to(torch.int32)).view(work)
    blocks = values.view(*scale.shape, BLOCK).mul_(_scales(scale, work).unsqueeze(-1))
    return blocks.view(*packed.shape[:-1], -1).to(dtype)


@functools.cache
def _nibble_pairs() -> np.ndarray:
    table, byte = element_table(FORMATS["mxfp4"]), np.arange(256)
    return np.stack([table[byte & 15], table[byte >> 4]], axis=1)


def decode(codes: Tensor, scale: Tensor, fmt: str | Format, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values [..., n] of one-per-byte codes [..., n] and scales [..., n/32]; see `gossamer.mx.decode`."""
    f = get(fmt)
    if codes.dtype != torch.uint8 or scale.dtype != torch.uint8:
        raise MXError(f"codes and scales must be uint8, got {codes.dtype} and {scale.dtype}")
    if codes.dim() == 0 or codes.shape[-1] != scale.shape[-1] * BLOCK or codes.shape[:-1] != scale.shape[:-1]:
        raise MXError(f"codes {tuple(codes.shape)} need one scale per {BLOCK}, got {tuple(scale.shape)}")
    values = _take(_constant(element_table(f), codes.device, torch.float32), codes).view(*scale.shape, BLOCK)
    return values.mul_(_scales(scale, torch.float32).unsqueeze(-1)).view(codes.shape).to(dtype)


def fake_quant(x: Tensor, fmt: str | Format, rule: Rule) -> Tensor:
    """Encode and decode ``x`` [..., n]; the gradient passes straight through.

    Computed in float32 and returned in the dtype of ``x``.  A block that holds NaN or Inf becomes NaN.

    Raises:
        MXError: for an unknown format or rule, or a last dimension that is no multiple of 32.
    """
    f, rule = get(fmt), check_rule(rule)
    if x.dim() == 0 or x.shape[-1] % BLOCK:
        raise MXError(f"shape {tuple(x.shape)}: the last dimension must be a multiple of {BLOCK}")
    if not x.is_floating_point():
        raise MXError(f"MX quantisation takes floats, got {x.dtype}")
    return _FakeQuant.apply(x, f, rule)


class _FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Format, rule: Rule) -> Tensor:
        return _quantise(x.to(torch.float32), f, rule).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0], None, None


def _quantise(x: Tensor, f: Format, rule: Rule) -> Tensor:
    # The comments on the bit arithmetic are in codec._encode_chunk; here the code is turned back at once.
    blocks = x.contiguous().reshape(-1, BLOCK)
    magnitude = blocks.view(torch.int32) & _ABS
    amax = magnitude.amax(dim=-1, keepdim=True)
    byte = (((amax + scale_increment(f, rule)) >> 23) - f.emax).clamp(0, f.max_scale_byte)
    y = magnitude.view(torch.float32) * ((2 * SCALE_BIAS - byte) << 23).view(torch.float32)
    y = y.clamp(max=f.max_normal)
    anchor = (y.view(torch.int32) & _INF).clamp(min=(f.emin + 127) << 23) + ((23 - f.mantissa_bits) << 23)
    anchor = anchor.view(torch.float32)
    y = (y + anchor) - anchor
    y = (y * _scales(byte, torch.float32)).copysign(blocks)
    return torch.where(amax < _INF, y, torch.nan).reshape(x.shape)


def _scales(byte: Tensor, dtype: torch.dtype) -> Tensor:
    return _take(_constant(scale_table(), byte.device, dtype), byte)


def _take(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index.reshape(-1).to(torch.int32)).view(index.shape)


def _constant(table: np.ndarray, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(table, dtype=dtype, device=device)
