"""Root-mean-square normalisation.

Shape legend: ``...`` any leading axes, D normalised width.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
    x32 = x.float()
    unit = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + eps)
    return unit.to(x.dtype) * weight


def l2_normalise(x: Tensor, eps: float) -> Tensor:
    """X / sqrt(sum(x^2) + eps) over the last axis, in float32; eps is inside the root, added to the sum."""
    x32 = x.float()
    return x32 * torch.rsqrt(x32.square().sum(-1, keepdim=True) + eps)
