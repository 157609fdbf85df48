"""Router and routed experts of the fused network.

Shape legend: M tokens, A experts per token, E experts, Z expert width, I intermediate width, D hidden width.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.kernels import backend
from gossamer.mx import Rule
from gossamer.mx.tensor import fake_quant
from gossamer.ops import router
from gossamer.train.fused.linear import linear


def experts(
    z: Tensor,
    indices: Tensor,
    weights: Tensor,
    w1: Tensor,
    w3: Tensor,
    w2: Tensor,
    beta: float,
    linear_beta: float | None,
) -> Tensor:
    """As `gossamer.ops.experts.naive_experts` with the SiTU activation.

    Args:
        z: [M, Z].
        indices: [M, A] int64.
        weights: [M, A].
        w1: [E, I, Z], gate.
        w3: [E, I, Z], up.
        w2: [E, Z, I], down.
        beta: of SiTU.
        linear_beta: of SiTU.

    Returns:
        [M, Z]; gradients reach z, weights and the three matrices.

    Raises:
        ValueError: the shapes do not fit, or an index names no expert.
    """
    return _Experts.apply(z.contiguous(), indices, weights.contiguous(), w1, w3, w2, beta, linear_beta or 0.0)


def route(
    x: Tensor, weight: Tensor, bias: Tensor, *, experts_per_token: int, renormalize: bool, scaling: float
) -> tuple[Tensor, Tensor]:
    """As `gossamer.ops.router.route` with one group: indices [M, A] and weights [M, A] of x [M, D]."""
    scores = torch.sigmoid(linear(x, weight))
    with torch.no_grad():
        picked = router.best(scores + bias, experts_per_token)
    weights = scores.gather(-1, picked)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return picked, weights * scaling


def quantised(w: Tensor, rule: Rule) -> Tensor:
    """The values MXFP4 stores for w [E, rows, columns], without a graph."""
    with torch.no_grad():
        return fake_quant(w, "mxfp4", rule)


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        indices: Tensor,
        weights: Tensor,
        w1: Tensor,
        w3: Tensor,
        w2: Tensor,
        beta: float,
        linear_beta: float,
    ) -> Tensor:
        pairs, inner = indices.numel(), w1.shape[1]
        order = torch.empty(pairs, dtype=torch.int32)
        starts = torch.empty(w1.shape[0] + 1, dtype=torch.int32)
        gate, up, y = z.new_empty(pairs, inner), z.new_empty(pairs, inner), torch.empty_like(z)
        native = _kernels()
        native.sort_pairs(indices.contiguous(), order, starts)
        parts = [t.detach() for t in (z, weights, w1, w3, w2)]
        native.experts(*parts, order, starts, gate, up, y, beta, linear_beta)
        ctx.save_for_backward(z, weights, w1, w3, w2, order, starts, gate, up)
        ctx.betas = (beta, linear_beta)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        saved = [t.detach() for t in ctx.saved_tensors]
        grads = [torch.empty_like(t) for t in saved[:5]]
        _kernels().experts_backward(*saved, grad_outputs[0].contiguous(), *grads, *ctx.betas)
        dz, dweights, *dw = grads
        return dz, None, dweights, *dw, None, None


def _kernels() -> ModuleType:
    return backend.load().train
