"""Linear maps without bias on the native matrix product, alone or several of one input.

Shape legend: K inputs, N outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gossamer.train.fused.native import call


def linear(x: Tensor, w: Tensor) -> Tensor:
    """The product x W^T.

    Args:
        x: [..., K] float32.
        w: [N, K] float32.

    Returns:
        [..., N] float32, contiguous.

    Raises:
        ValueError: the shapes do not fit.
    """
    return joint_linear(x, w)[0]


def joint_linear(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Products x W^T for several W in one node of the graph: their input gradients are summed in one buffer.

    Args:
        x: [..., K] float32.
        weights: each [N, K] float32, with an N of its own.

    Returns:
        One [..., N] float32 for each weight, contiguous.

    Raises:
        ValueError: the shapes do not fit.
    """
    for w in weights:
        if w.ndim != 2 or w.shape[1] != x.shape[-1]:
            raise ValueError(
                f"a weight is {list(w.shape)}, but x {list(x.shape)} needs [outputs, {x.shape[-1]}]"
            )
    return _JointLinear.apply(x, *weights)


class _JointLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        rows = x.detach().reshape(-1, x.shape[-1]).contiguous()
        own = [w.detach().contiguous() for w in weights]
        outputs = []
        for w in own:
            y = torch.empty(*x.shape[:-1], len(w), dtype=torch.float32)
            call("sgemm", rows, w, y.view(len(rows), len(w)), trans_b=True)
            outputs.append(y)
        ctx.save_for_backward(rows, *own)
        ctx.set_materialize_grads(False)
        ctx.shape = x.shape
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:  # pyrefly: ignore
        rows, *own = ctx.saved_tensors
        dx = None
        dw: list[Tensor | None] = [None] * len(own)
        for i, (w, gradient) in enumerate(zip(own, gradients, strict=True)):
            if gradient is None:
                continue
            g = gradient.reshape(len(rows), len(w)).contiguous()
            if ctx.needs_input_grad[0]:
                first = dx is None
                dx = torch.empty_like(rows) if first else dx
                call("sgemm", g, w, dx, accumulate=not first)
            if ctx.needs_input_grad[i + 1]:
                dw[i] = torch.empty_like(w)
                call("sgemm", g, rows, dw[i], trans_a=True)
        return (None if dx is None else dx.view(ctx.shape), *dw)
