"""The short convolution as W shifted multiply-adds over whole sequences.

Shape legend: B batch, T tokens, C channels, W taps.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def _convolve(past: Tensor, weight: Tensor, tokens: int) -> Tensor:
    """Takes past [B, T+W-1, C] and weight [C, W], both float32; [B, T, C]."""
    out = past[:, :tokens] * weight[:, 0]
    for j in range(1, weight.shape[-1]):
        out.addcmul_(past[:, j : j + tokens], weight[:, j])
    return out


class _ShortConv(torch.autograd.Function):
    """The backward pass recomputes the sums: cheaper than keeping another activation."""

    @staticmethod
    def forward(ctx: Any, past: Tensor, weight: Tensor, tokens: int) -> Tensor:
        ctx.save_for_backward(past, weight)
        ctx.tokens = tokens
        return F.silu(_convolve(past.float(), weight, tokens), inplace=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, None]:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        past, weight = ctx.saved_tensors
        dtype, past = past.dtype, past.float()
        tokens, taps = ctx.tokens, weight.shape[-1]
        d = torch.ops.aten.silu_backward(grad.contiguous(), _convolve(past, weight, tokens))
        grad_past = torch.zeros(past.shape)
        grad_weight = torch.empty_like(weight)
        for j in range(taps):
            grad_past[:, j : j + tokens].addcmul_(d, weight[:, j])
            grad_weight[:, j] = (d * past[:, j : j + tokens]).sum((0, 1))
        return grad_past.to(dtype), grad_weight, None


def short_conv(x: Tensor, weight: Tensor, tail: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As `gossamer.ops.short_conv.naive.naive_short_conv`, vectorised over tokens."""
    _, tokens, channels = x.shape
    taps = weight.shape[-1]
    past = F.pad(x, (0, 0, taps - 1, 0)) if tail is None else torch.cat([tail.to(x.dtype), x], 1)
    return _ShortConv.apply(past, weight.float().reshape(channels, taps), tokens), past[:, tokens:]
