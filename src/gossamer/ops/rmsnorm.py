"""Root-mean-square normalisation.

Shape legend: ``...`` any leading axes, D normalised width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _RMSNorm(torch.autograd.Function):
    """With n = x r, r = rsqrt(mean(x^2) + eps), h = dy w: dx = r (h - n mean(h n)), dw = sum(dy n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x32 = x.float()
        inverse = torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, inverse)
        return (x32 * inverse).to(x.dtype) * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        x, weight, inverse = ctx.saved_tensors
        grad = grad_outputs[0].float()
        unit = x.float() * inverse
        both = grad * unit
        grad_weight = both.sum(tuple(range(x.dim() - 1)))
        projection = torch.matmul(both, weight.float()).div_(x.shape[-1]).unsqueeze(-1)
        grad_x = (grad * weight.float()).addcmul_(unit, projection, value=-1.0).mul_(inverse)
        return grad_x.to(x.dtype), grad_weight.to(weight.dtype), None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in float32, cast down to x's dtype, then multiply by the weight.

    The order matters in bfloat16: the reference rounds the normalised value before the weight is applied.

    Args:
        x: [..., D].
        weight: [D].
        eps: Added to the mean square, inside the root.

    Returns:
        [..., D] in the promoted dtype of x and weight.
    """
    with torch.autocast("cpu", enabled=False):
        return _RMSNorm.apply(x, weight, eps)


def l2_normalise(x: Tensor, eps: float) -> Tensor:
    """X / sqrt(sum(x^2) + eps) over the last axis, in float32; eps is inside the root, added to the sum."""
    x32 = x.float()
    return x32 * torch.rsqrt(x32.square().sum(-1, keepdim=True) + eps)
