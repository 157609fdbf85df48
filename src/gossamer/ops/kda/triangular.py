"""Inverse of a unit lower-triangular matrix by blocks, with its closed-form gradient.

Shape legend: ``...`` any leading axes, C matrix size (a power of two).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BASE = 8


def _inverse_by_rows(lower: Tensor) -> Tensor:
    """Forward substitution on [batch, c, c]; the batch is moved last so that each row is one long vector."""
    size = lower.shape[-1]
    l_cc = lower.permute(1, 2, 0).contiguous()  # [c, c, batch]
    x = torch.eye(size).unsqueeze(-1).repeat(1, 1, lower.shape[0])
    for i in range(1, size):
        x[i, :i] -= (l_cc[i, :i].unsqueeze(1) * x[:i, :i]).sum(0)
    return x.permute(2, 0, 1).contiguous()


def _inverse(lower: Tensor) -> Tensor:
    """(I + lower)^-1 for strictly lower [batch, C, C]."""
    batch, size, _ = lower.shape
    base = min(size, _BASE)
    num_blocks = size // base
    blocks = lower.reshape(batch, num_blocks, base, num_blocks, base)
    diagonal = blocks.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(-1, base, base)
    inverse = _inverse_by_rows(diagonal).reshape(batch, num_blocks, base, base)
    # [[a, 0], [b, d]]^-1 = [[a', 0], [-d' b a', d']]: two neighbours become one block twice the size.
    while num_blocks > 1:
        num_blocks //= 2
        a, d = inverse[:, 0::2], inverse[:, 1::2]
        pairs = lower.reshape(batch, num_blocks, 2, base, num_blocks, 2, base)
        b = pairs[:, :, 1, :, :, 0].diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
        merged = lower.new_zeros(batch, num_blocks, 2 * base, 2 * base)
        merged[..., :base, :base] = a
        merged[..., base:, base:] = d
        merged[..., base:, :base] = -(d @ b @ a)
        inverse, base = merged, 2 * base
    return inverse.reshape(batch, size, size)


class _UnitLowerInverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lower: Tensor) -> Tensor:
        inverse = _inverse(lower.flatten(0, -3)).reshape(lower.shape)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Tensor:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        (inverse,) = ctx.saved_tensors
        t = inverse.transpose(-1, -2)
        return -(t @ grad @ t).tril(-1)


def unit_lower_inverse(lower: Tensor) -> Tensor:
    """(I + lower)^-1.

    Forward substitution on small diagonal blocks, then block merging: as stable as substitution, whereas the
    product (I - L)(I + L^2)(I + L^4)... loses all digits when keys repeat.

    Args:
        lower: [..., C, C], strictly lower triangular, C a power of two, at least one leading axis.

    Returns:
        [..., C, C], unit lower triangular.
    """
    return _UnitLowerInverse.apply(lower)
