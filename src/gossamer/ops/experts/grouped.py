"""The routed experts on sorted tokens: one matrix product per expert, exact for any load.

Shape legend: M tokens, A experts per token, R = M*A rows sorted by expert, E experts, Z expert width,
I intermediate width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.ops.situ import Activation


class _Dispatch(torch.autograd.Function):
    """Row r of the result is token order[r] // A.  Backward un-sorts and sums: no scattered addition."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, order: Tensor, inverse: Tensor, fan_out: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.fan_out = fan_out
        return z.index_select(0, order // fan_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, None, None, None]:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse).unflatten(0, (-1, ctx.fan_out)).sum(1), None, None, None


class _Combine(torch.autograd.Function):
    """Weighted sum over a token's A rows, in float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights, order, inverse)
        picked = (
            rows.index_select(0, inverse).to(torch.float32, copy=True).unflatten(0, weights.shape)
        )  # [M, A, Z]
        return picked.mul_(weights.unsqueeze(-1)).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, None, None]:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        rows, weights, order, inverse = ctx.saved_tensors
        picked = rows.index_select(0, inverse).unflatten(0, weights.shape).float()
        grad_weights = (picked * grad.unsqueeze(1)).sum(-1)
        spread = grad.index_select(0, order // weights.shape[1])
        grad_rows = spread * weights.flatten().index_select(0, order).unsqueeze(-1)
        return grad_rows.to(rows.dtype), grad_weights, None, None


class _GroupedLinear(torch.autograd.Function):
    """y = x W_e^T on consecutive groups of rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, counts: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.counts = counts
        out = x.new_empty(x.shape[0], weight.shape[1])
        for e, (start, end) in _spans(counts):
            torch.mm(x[start:end], weight[e].t(), out=out[start:end])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, Tensor, None]:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        for e, (start, end) in _spans(ctx.counts):
            torch.mm(grad[start:end], weight[e], out=grad_x[start:end])
            torch.mm(grad[start:end].t(), x[start:end], out=grad_weight[e])
        return grad_x, grad_weight, None


def _spans(counts: list[int]) -> list[tuple[int, tuple[int, int]]]:
    """(expert, (first row, end row)) of every expert with rows."""
    found, start = [], 0
    for e, count in enumerate(counts):
        if count:
            found.append((e, (start, start + count)))
        start += count
    return found


def sort_by_expert(indices: Tensor, num_experts: int) -> tuple[Tensor, Tensor, list[int]]:
    """Order of the flattened pairs by expert (stable), its inverse, and the rows per expert."""
    flat = indices.flatten()
    order = flat.argsort(stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.shape[0])
    return order, inverse, torch.bincount(flat, minlength=num_experts).tolist()


def _compute_dtype(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype


def grouped_experts(
    z: Tensor,
    indices: Tensor,
    weights: Tensor,
    w1: Tensor,
    w3: Tensor,
    w2: Tensor,
    activation: Activation,
    quantise: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """As `gossamer.ops.experts.naive.naive_experts`; products run in z's dtype, or autocast's where it is on.

    Args:
        z: [M, Z].
        indices: [M, A] int64.
        weights: [M, A] float32.
        w1: [E, I, Z].
        w3: [E, I, Z].
        w2: [E, Z, I].
        activation: Takes (gate, up).
        quantise: Applied to the input of both products (an activation format), or None.

    Returns:
        [M, Z] float32.
    """
    order, inverse, counts = sort_by_expert(indices, w1.shape[0])
    dtype = _compute_dtype(z)
    with torch.autocast("cpu", enabled=False):
        z = z.to(dtype) if quantise is None else quantise(z).to(dtype)
        rows = _Dispatch.apply(z, order, inverse, indices.shape[1])
        both = _GroupedLinear.apply(rows, torch.cat([w1, w3], 1).to(dtype), counts)  # [R, 2I]
        gate, up = both.chunk(2, -1)
        hidden = activation(gate, up)
        if quantise is not None:
            hidden = quantise(hidden).to(dtype)
        return _Combine.apply(_GroupedLinear.apply(hidden, w2.to(dtype), counts), weights, order, inverse)
