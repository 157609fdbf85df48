"""Router and routed experts of the fused network.

Shape legend: M tokens, A experts per token, E experts, Z expert width, I intermediate width, D hidden width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.mx import BLOCK, FORMATS, MXError, Rule
from gossamer.mx.formats import check_rule, scale_increment
from gossamer.train.fused.native import call, kernels


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
        linear_beta: of SiTU; None leaves the up branch unbounded.

    Returns:
        [M, Z]; gradients reach z, weights and the three matrices.

    Raises:
        ValueError: the shapes do not fit, or an index names no expert.
    """
    if w1.ndim != 3 or w3.shape != w1.shape or w2.shape != w1.mT.shape:
        raise ValueError(
            f"w1 and w3 must be [E, I, Z] and w2 [E, Z, I], got {list(w1.shape)}, {list(w3.shape)} and "
            f"{list(w2.shape)}"
        )
    if weights.shape != indices.shape:
        raise ValueError(f"weights are {list(weights.shape)}, but indices {list(indices.shape)}")
    parts = [t.contiguous() for t in (z, weights, w1, w3, w2)]
    return _Experts.apply(indices.contiguous(), *parts, beta, linear_beta or 0.0)


def route(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    experts_per_token: int,
    renormalize: bool,
    scaling: float,
    num_groups: int = 1,
) -> tuple[Tensor, Tensor]:
    """As `gossamer.ops.router.route` with one group of experts.

    Args:
        x: [M, D].
        weight: [E, D].
        bias: [E]; it decides who is selected, never the weight.
        experts_per_token: A.
        renormalize: Make the chosen scores sum to one before scaling.
        scaling: Multiplies the weights.
        num_groups: Must be 1.

    Returns:
        Indices [M, A] int64, best first, ties to the lower index, and weights [M, A] with gradients to x and
        weight.

    Raises:
        ValueError: more than one group, more experts per token than experts, or shapes that do not fit.
    """
    if num_groups != 1:
        raise ValueError(
            f"the fused router knows one group of experts, got {num_groups}; use ops.router.route"
        )
    parts = (x.contiguous(), weight.contiguous(), bias.detach().contiguous())
    return _Route.apply(*parts, experts_per_token, renormalize, scaling)


def quantised(w: Tensor, rule: Rule) -> Tensor:
    """The values MXFP4 stores for w [..., n] float32, without a graph; equal to `mx.tensor.fake_quant`.

    Raises:
        MXError: unknown rule, another dtype, or a last dimension that is no multiple of 32.
    """
    if w.dim() == 0 or w.shape[-1] % BLOCK or w.dtype != torch.float32:
        raise MXError(f"blocks of {BLOCK} float32 values are needed, got {w.dtype} {list(w.shape)}")
    values = w.detach().contiguous()
    y = torch.empty_like(values)
    call("mxfp4_values", values, y, scale_increment(FORMATS["mxfp4"], check_rule(rule)))
    return y


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        indices: Tensor,
        z: Tensor,
        weights: Tensor,
        w1: Tensor,
        w3: Tensor,
        w2: Tensor,
        beta: float,
        linear_beta: float,
    ) -> Tensor:
        pairs = indices.numel()
        order = torch.empty(pairs, dtype=torch.int32)
        starts = torch.empty(w1.shape[0] + 1, dtype=torch.int32)
        call("sort_pairs", indices, order, starts)
        kept, y = z.new_empty(2, pairs, kernels().padded(w1.shape[1])), torch.empty_like(z)
        parts = [t.detach() for t in (z, weights, w1, w3, w2)]
        call("experts", *parts, order, starts, *kept, y, beta, linear_beta)
        ctx.save_for_backward(z, weights, w1, w3, w2, order, starts, kept)
        ctx.betas = (beta, linear_beta)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        *saved, kept = (t.detach() for t in ctx.saved_tensors)
        grads = [torch.empty_like(t) for t in saved[:5]]
        call("experts_backward", *saved, *kept, grad_outputs[0].contiguous(), *grads, *ctx.betas)
        return None, *grads, None, None


class _Route(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, per_token: int, renormalize: bool, scaling: float
    ) -> tuple[Tensor, Tensor]:
        indices = torch.empty(len(x), per_token, dtype=torch.int64)
        weights, picked = x.new_empty(len(x), per_token), x.new_empty(len(x), per_token)
        own = (x.detach(), weight.detach())
        call("route", *own, bias, indices, weights, picked, renormalize, scaling)
        ctx.save_for_backward(x, weight, indices, picked)
        ctx.mark_non_differentiable(indices)
        ctx.options = (renormalize, scaling)
        return indices, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        saved = [t.detach() for t in ctx.saved_tensors]
        dx, dw = torch.empty_like(saved[0]), torch.empty_like(saved[1])
        call("route_backward", *saved, grad_outputs[1].contiguous(), dx, dw, *ctx.options)
        return dx, dw, None, None, None, None
