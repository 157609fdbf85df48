"""Norms, mixes and gates of the fused network.

Shape legend: ``...`` any leading axes, D width, I intermediate width, V vocabulary.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.kernels import backend


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    """As `gossamer.ops.situ.situ` on float32 tensors of one shape; the gradient recomputes instead of saving."""
    return _Situ.apply(gate.contiguous(), up.contiguous(), beta, linear_beta or 0.0)


def gated(a: Tensor, g: Tensor) -> Tensor:
    """The product a sigmoid(g) of two tensors of one shape."""
    return _Gated.apply(a.contiguous(), g.contiguous())


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `gossamer.ops.rmsnorm.rms_norm`: x [..., D], weight [D]."""
    return _RMSNorm.apply(x.contiguous(), weight, eps)


def mix_norm(
    candidates: list[Tensor], norm_weight: Tensor, proj_weight: Tensor, eps: float, weight: Tensor, norm_eps: float
) -> Tensor:
    """`gossamer.ops.attn_residual.mix` followed by an RMS norm, in one pass.

    Args:
        candidates: n tensors [..., D].
        norm_weight: [D] of the mix.
        proj_weight: [1, D] of the mix.
        eps: of the mix.
        weight: [D] of the norm after it.
        norm_eps: of the norm after it.

    Returns:
        [..., D].
    """
    score = norm_weight * proj_weight.flatten()
    return _MixNorm.apply(score, weight, eps, norm_eps, *(c.contiguous() for c in candidates))


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight [V, D] by ids [...]."""
    return torch.nn.functional.embedding(ids, weight)


class _Situ(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, beta: float, linear_beta: float) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.betas = (beta, linear_beta)
        y = torch.empty_like(gate)
        _kernels().situ(gate.detach(), up.detach(), y, beta, linear_beta)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        gate, up = ctx.saved_tensors
        grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
        dy = grad_outputs[0].contiguous()
        _kernels().situ_backward(gate.detach(), up.detach(), dy, grad_gate, grad_up, *ctx.betas)
        return grad_gate, grad_up, None, None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, g: Tensor) -> Tensor:
        ctx.save_for_backward(a, g)
        y = torch.empty_like(a)
        _kernels().gated(a.detach(), g.detach(), y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        a, g = ctx.saved_tensors
        grad_a, grad_g = torch.empty_like(a), torch.empty_like(g)
        _kernels().gated_backward(a.detach(), g.detach(), grad_outputs[0].contiguous(), grad_a, grad_g)
        return grad_a, grad_g


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        _kernels().rms_norm(x.detach(), weight.detach(), y, inverse, eps)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        x, weight, inverse = ctx.saved_tensors
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        dy = grad_outputs[0].contiguous()
        _kernels().rms_norm_backward(x.detach(), weight.detach(), inverse, dy, grad_x, grad_weight)
        return grad_x, grad_weight, None


class _MixNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, score: Tensor, weight: Tensor, eps: float, norm_eps: float, *candidates: Tensor
    ) -> Tensor:
        plain = [c.detach() for c in candidates]
        y = torch.empty_like(plain[0])
        kept = y.new_empty(*y.shape[:-1], 3 * len(plain) + 1)
        _kernels().mix_norm(plain, score.detach(), weight.detach(), y, kept, eps, norm_eps)
        ctx.save_for_backward(score, weight, kept, *candidates)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        score, weight, kept, *candidates = ctx.saved_tensors
        plain = [c.detach() for c in candidates]
        grads = [torch.empty_like(c) for c in plain]
        grad_score, grad_weight = torch.zeros_like(score), torch.zeros_like(weight)
        _kernels().mix_norm_backward(
            plain,
            score.detach(),
            weight.detach(),
            kept,
            grad_outputs[0].contiguous(),
            grads,
            grad_score,
            grad_weight,
        )
        return grad_score, grad_weight, None, None, *grads


def _kernels() -> ModuleType:
    return backend.load().train
