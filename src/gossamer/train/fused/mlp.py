"""The gated feed-forward network as one node of the graph.

Shape legend: D width, F intermediate width, M rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.train.fused.native import call, kernels


def gated_mlp(
    x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, beta: float, linear_beta: float | None
) -> Tensor:
    """The network w_down situ(w_gate x, w_up x), with the activation of `gossamer.ops.situ`.

    Rows are worked on in blocks that stay in cache; only the pre-activations are kept for the gradient.

    Args:
        x: [M, D] float32.
        w_gate: [F, D] float32.
        w_up: [F, D] float32.
        w_down: [D, F] float32.
        beta: Bound of the gate branch.
        linear_beta: Bound of the up branch; None leaves it unbounded.

    Returns:
        [M, D] float32; gradients reach x and the three matrices.

    Raises:
        ValueError: the shapes do not fit.
    """
    if w_gate.ndim != 2 or w_up.shape != w_gate.shape or w_down.shape != w_gate.shape[::-1]:
        raise ValueError(
            f"w_gate and w_up must be [F, D] and w_down [D, F], got {list(w_gate.shape)}, "
            f"{list(w_up.shape)} and {list(w_down.shape)}"
        )
    if x.ndim != 2 or x.shape[1] != w_gate.shape[1]:
        raise ValueError(
            f"x is {list(x.shape)}, but w_gate {list(w_gate.shape)} needs [M, {w_gate.shape[1]}]"
        )
    parts = [t.contiguous() for t in (x, w_gate, w_up, w_down)]
    return _GatedMLP.apply(*parts, beta, linear_beta or 0.0)


class _GatedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, beta: float, linear_beta: float
    ) -> Tensor:
        kept = x.new_empty(2, len(x), kernels().padded(len(w_gate)))
        y = torch.empty_like(x)
        call("gated_mlp", *(t.detach() for t in (x, w_gate, w_up, w_down)), *kept, y, beta, linear_beta)
        ctx.save_for_backward(x, w_gate, w_up, w_down, kept)
        ctx.betas = (beta, linear_beta)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        *parts, kept = (t.detach() for t in ctx.saved_tensors)
        grads = [torch.empty_like(t) for t in parts]
        call("gated_mlp_backward", *parts, *kept, grad_outputs[0].contiguous(), *grads, *ctx.betas)
        return *grads, None, None
