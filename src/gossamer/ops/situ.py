"""SiTU, the bounded gated activation, and SiLU beside it under one signature.

Shape legend: ``...`` any leading axes, I intermediate width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Activation = Callable[[Tensor, Tensor], Tensor]


class _Situ(torch.autograd.Function):
    """With a = tanh(g/beta), s = sigmoid(g), b = tanh(u/linear_beta) and c = beta linear_beta: y = c a s b.

    dy/dg = c s b (1/beta + a - a (a/beta + s)),  dy/du = c a s (1 - b^2) / linear_beta.
    """

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
        g, u = gate.float(), up.float()
        a, s = (g / beta).tanh_(), torch.sigmoid(g)
        b = u if linear_beta is None else (u / linear_beta).tanh_()
        ctx.save_for_backward(a, s, b)
        ctx.betas, ctx.dtypes = (beta, linear_beta), (gate.dtype, up.dtype)
        scale = beta if linear_beta is None else beta * linear_beta
        return (a * s).mul_(b).mul_(scale).to(gate.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        (grad,) = grad_outputs
        a, s, b = ctx.saved_tensors
        beta, linear_beta = ctx.betas
        t = (grad.float() * s).mul_(beta if linear_beta is None else beta * linear_beta)
        grad_up = t * a
        if linear_beta is not None:
            grad_up = torch.addcmul(grad_up, grad_up * b, b, value=-1.0).mul_(1 / linear_beta)
        inner = (a / beta).add_(s).mul_(a).neg_().add_(a).add_(1 / beta)
        grad_gate = inner.mul_(t).mul_(b)
        return grad_gate.to(ctx.dtypes[0]), grad_up.to(ctx.dtypes[1]), None, None


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    """[beta tanh(gate/beta) sigmoid(gate)] * [linear_beta tanh(up/linear_beta)], in float32.

    Args:
        gate: [..., I].
        up: [..., I].
        beta: Bound of the gate branch.
        linear_beta: Bound of the up branch; None leaves it unbounded.

    Returns:
        [..., I] in gate's dtype.
    """
    return _Situ.apply(gate, up, beta, linear_beta)


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, in float32, cast to gate's dtype."""
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)
