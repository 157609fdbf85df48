"""Decayed inner products inside a chunk: sum_d x_id k_jd exp(G_id - G_jd) for j <= i, never overflowing.

Shape legend: X = batch*heads*chunks, C chunk size, c sub-chunk size, K key channels; i row, j column.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_SUB = 16
_MAX_EXPONENT = 80.0
"""exp of this is far inside float32, and so is its inverse."""


def _factors(k: Tensor, decay: Tensor, block: int, size: int) -> tuple[Tensor, Tensor]:
    """exp(G_i - R) for the rows of a block and k_j exp(R - G_j) for all columns before it; both bounded by 1.

    R is G just before the block, so neither exponent is ever positive.
    """
    start = block * size
    reference = decay[:, start - 1 : start]
    rows = torch.exp(decay[:, start : start + size] - reference)
    columns = torch.exp(reference - decay[:, :start])
    return rows, columns


class _DecayedProducts(torch.autograd.Function):
    """Both products and their gradients.

    With D = dL/dA and A_ij = sum_d q_id k_jd E_ijd:  dq_i = sum_j D_ij k_j E_ij,  dk_j = sum_i D_ij q_i E_ij,
    and because E depends on G_i - G_j alone, dG = q dq - k dk.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, decay: Tensor, bounded: bool) -> tuple[Tensor, Tensor]:
        num, size, width = k.shape
        sub = min(_SUB, size)
        x = torch.stack([q, k], 1)  # [X, 2, C, K]
        out = x.new_zeros(num, 2, size, size)
        for block in range(1, size // sub):
            rows, columns = _factors(k, decay, block, sub)
            at = slice(block * sub, (block + 1) * sub)
            left = (x[:, :, at] * rows.unsqueeze(1)).reshape(num, 2 * sub, width)
            right = (k[:, : at.start] * columns).transpose(-1, -2)
            out[:, :, at, : at.start] = (left @ right).unflatten(1, (2, sub))
        diagonal = _diagonal(x, k, decay, sub, bounded)  # [X, blocks, 2, c, c]
        for block in range(size // sub):
            at = slice(block * sub, (block + 1) * sub)
            out[:, :, at, at] = diagonal[:, block]
        ctx.save_for_backward(q, k, decay)
        ctx.bounded, ctx.sub = bounded, sub
        return out[:, 0], out[:, 1].tril(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, Tensor, None]:  # pyrefly: ignore[bad-override]
        grad_qk, grad_kk = grad_outputs
        q, k, decay = ctx.saved_tensors
        num, size, width = k.shape
        sub = ctx.sub
        x = torch.stack([q, k], 1)
        grad = torch.stack([grad_qk.tril(), grad_kk.tril(-1)], 1)  # [X, 2, C, C]
        grad_x, grad_k = _diagonal_backward(x, k, decay, grad, sub, ctx.bounded)
        for block in range(1, size // sub):
            rows, columns = _factors(k, decay, block, sub)
            at = slice(block * sub, (block + 1) * sub)
            left = (x[:, :, at] * rows.unsqueeze(1)).reshape(num, 2 * sub, width)
            right = k[:, : at.start] * columns
            d = grad[:, :, at, : at.start].reshape(num, 2 * sub, at.start)
            grad_x[:, :, at] += (d @ right).unflatten(1, (2, sub)) * rows.unsqueeze(1)
            grad_k[:, : at.start] += (d.transpose(-1, -2) @ left) * columns
        grad_decay = (x * grad_x).sum(1) - k * grad_k
        return grad_x[:, 0], grad_x[:, 1] + grad_k, grad_decay, None


def _blocks(x: Tensor, sub: int) -> Tensor:
    """[X, ..., C, K] -> [X, ..., blocks, c, K]."""
    return x.unflatten(-2, (-1, sub))


def _centred(decay: Tensor, sub: int) -> Tensor:
    """G minus its value in the middle of each sub-chunk, [X, blocks, c, K]: half the range on either side."""
    blocks = _blocks(decay, sub)
    return blocks - blocks[:, :, sub // 2 : sub // 2 + 1]


def _differences(decay: Tensor, sub: int) -> Tensor:
    """exp(G_i - G_j) for j <= i, zero above the diagonal, [X, blocks, c, c, K]; safe for any decay."""
    blocks = _blocks(decay, sub)
    d = blocks.unsqueeze(3) - blocks.unsqueeze(2)
    above = torch.ones(sub, sub, dtype=torch.bool).triu(1).unsqueeze(-1)
    return d.masked_fill_(above, -torch.inf).exp_()


def _diagonal(x: Tensor, k: Tensor, decay: Tensor, sub: int, bounded: bool) -> Tensor:
    """Products inside the sub-chunks, [X, blocks, 2, c, c]."""
    rows, keys = _blocks(x, sub).transpose(1, 2), _blocks(k, sub)  # [X, blocks, 2, c, K], [X, blocks, c, K]
    if not bounded:
        e = _differences(decay, sub)
        return torch.einsum("xbsik,xbijk->xbsij", rows, keys.unsqueeze(2) * e)
    centred = _centred(decay, sub)
    left = (rows * centred.exp().unsqueeze(2)).flatten(2, 3)
    right = (keys * torch.exp(-centred)).transpose(-1, -2)
    return (left @ right).unflatten(2, (2, sub)).tril()


def _diagonal_backward(
    x: Tensor, k: Tensor, decay: Tensor, grad: Tensor, sub: int, bounded: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of the rows [X, 2, C, K] and columns [X, C, K] from the diagonal sub-chunks alone."""
    num, _, size, width = x.shape
    count = size // sub
    rows, keys = _blocks(x, sub).transpose(1, 2), _blocks(k, sub)
    square = grad.reshape(num, 2, count, sub, count, sub).diagonal(dim1=2, dim2=4)  # [X, 2, c, c, blocks]
    d = square.permute(0, 4, 1, 2, 3)  # [X, blocks, 2, c, c]
    if not bounded:
        e = _differences(decay, sub)
        grad_rows = torch.einsum("xbsij,xbijk->xbsik", d, keys.unsqueeze(2) * e)
        grad_keys = torch.einsum("xbsij,xbsik,xbijk->xbjk", d, rows, e)
    else:
        centred = _centred(decay, sub)
        grow, shrink = centred.exp(), torch.exp(-centred)
        d = d.flatten(2, 3)  # [X, blocks, 2c, c]
        left = (rows * grow.unsqueeze(2)).flatten(2, 3)
        grad_rows = (d @ (keys * shrink)).unflatten(2, (2, sub)) * grow.unsqueeze(2)
        grad_keys = (d.transpose(-1, -2) @ left) * shrink
    return grad_rows.transpose(1, 2).reshape(num, 2, size, width), grad_keys.reshape(num, size, width)


def decayed_products(q: Tensor, k: Tensor, decay: Tensor, bound: float | None) -> tuple[Tensor, Tensor]:
    """Products of q rows and of k rows with k columns, each weighted by the decay between the two tokens.

    Args:
        q: [..., C, K].
        k: [..., C, K].
        decay: G [..., C, K], inclusive cumulative log decay of the chunk.
        bound: A lower bound of one token's log decay, or None.  When c tokens cannot leave float32's range
            the diagonal sub-chunks factorise too; otherwise they go through explicit differences.

    Returns:
        qk [..., C, C] lower triangular with the diagonal, kk [..., C, C] strictly lower.
    """
    size = k.shape[-2]
    bounded = bound is not None and -bound * min(_SUB, size) <= _MAX_EXPONENT
    lead = k.shape[:-2]
    qk, kk = _DecayedProducts.apply(q.flatten(0, -3), k.flatten(0, -3), decay.flatten(0, -3), bounded)
    return qk.reshape(*lead, size, size), kk.reshape(*lead, size, size)
