"""Norms, attention-residual mixes, gates and the embedding on native kernels.

Every function computes what the operator of the same name in `gossamer.ops` defines, on float32 tensors of
the CPU, as one autograd node whose forward and backward pass are one kernel each.

Shape legend: ``...`` any leading axes, B batch, T tokens, D width, I intermediate width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.train.fused.native import call, plain


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The product x rsqrt(mean(x^2) + eps) weight over the last axis; see `gossamer.ops.rmsnorm.rms_norm`.

    Args:
        x: [..., D].
        weight: [D].
        eps: Added to the mean square, inside the root.

    Returns:
        [..., D].
    """
    return _RMSNorm.apply(x, weight, eps)


def mix(candidates: list[Tensor], norm_weight: Tensor, proj_weight: Tensor, eps: float) -> Tensor:
    """The attention-residual mix; see `gossamer.ops.attn_residual.mix`.

    Args:
        candidates: 1 to 64 tensors [B, T, D].
        norm_weight: [D].
        proj_weight: [1, D].
        eps: Added to the mean square.

    Returns:
        [B, T, D]; with one candidate that candidate itself.
    """
    if len(candidates) == 1:
        return candidates[0]
    return _Mix.apply(norm_weight, proj_weight, eps, None, 0.0, *candidates)


def mix_norm(
    candidates: list[Tensor],
    norm_weight: Tensor,
    proj_weight: Tensor,
    eps: float,
    layer_weight: Tensor,
    layer_eps: float,
) -> Tensor:
    """rms_norm(mix(candidates, norm_weight, proj_weight, eps), layer_weight, layer_eps) in one pass.

    Args:
        candidates: 1 to 64 tensors [B, T, D].
        norm_weight: [D], of the mix.
        proj_weight: [1, D], of the mix.
        eps: Of the mix.
        layer_weight: [D], of the norm that follows.
        layer_eps: Of the norm that follows.

    Returns:
        [B, T, D].
    """
    if len(candidates) == 1:
        return rms_norm(candidates[0], layer_weight, layer_eps)
    return _Mix.apply(norm_weight, proj_weight, eps, layer_weight, layer_eps, *candidates)


def gated(a: Tensor, gate: Tensor) -> Tensor:
    """The product a sigmoid(gate), both [..., D]."""
    return _Gated.apply(a, gate)


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of a table.

    Args:
        ids: [...] int64.
        weight: [V, D].

    Returns:
        [..., D].

    Raises:
        ValueError: an id is outside 0 .. V - 1.
    """
    return _Embedding.apply(ids, weight)


def _rows(x: Tensor) -> Tensor:
    """`plain`, as a matrix of its last axis."""
    return plain(x).view(-1, x.shape[-1])


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rows, gain = _rows(x), plain(weight)
        y, inverse = torch.empty_like(rows), rows.new_empty(rows.shape[0])
        call("rms_norm_forward", rows, gain, eps, y, inverse)
        ctx.save_for_backward(rows, gain, inverse)
        ctx.shape = x.shape
        return y.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        rows, gain, inverse = ctx.saved_tensors
        dx, dweight = torch.empty_like(rows), torch.empty_like(gain)
        call("rms_norm_backward", _rows(grad_outputs[0]), rows, gain, inverse, dx, dweight)
        return dx.view(ctx.shape), dweight, None


class _Mix(torch.autograd.Function):
    """The mix and, with a gain, the norm after it; the mix itself is computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        norm: Tensor,
        proj: Tensor,
        eps: float,
        gain: Tensor | None,
        gain_eps: float,
        *candidates: Tensor,
    ) -> Tensor:
        values = [_rows(c) for c in candidates]
        weights = plain(norm), plain(proj).view(-1), norm.new_empty(0) if gain is None else plain(gain)
        y = torch.empty_like(values[0])
        state = y.new_empty(y.shape[0], 3 * len(values) + 1)
        call("mix_forward", values, weights[0], weights[1], eps, weights[2], gain_eps, y, state)
        ctx.save_for_backward(*weights, state, *values)
        ctx.epsilons, ctx.shape, ctx.normed = (eps, gain_eps), candidates[0].shape, gain is not None
        ctx.proj_shape = proj.shape
        return y.view(ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        norm, proj, gain, state, *values = ctx.saved_tensors
        eps, gain_eps = ctx.epsilons
        dvalues = [torch.empty_like(v) for v in values]
        dnorm, dproj, dgain = torch.empty_like(norm), torch.empty_like(proj), torch.empty_like(gain)
        grad = _rows(grad_outputs[0])
        call(
            "mix_backward", grad, values, norm, proj, eps, gain, gain_eps, state, dvalues, dnorm, dproj, dgain
        )
        dcandidates = [d.view(ctx.shape) for d in dvalues]
        last = dgain if ctx.normed else None
        return dnorm, dproj.view(ctx.proj_shape), None, last, None, *dcandidates


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, gate: Tensor) -> Tensor:
        rows, gates = _rows(a), _rows(gate)
        y = torch.empty_like(rows)
        call("gated_forward", rows, gates, y)
        ctx.save_for_backward(rows, gates)
        ctx.shape = a.shape
        return y.view(a.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        rows, gates = ctx.saved_tensors
        da, dgate = torch.empty_like(rows), torch.empty_like(gates)
        call("gated_backward", _rows(grad_outputs[0]), rows, gates, da, dgate)
        return da.view(ctx.shape), dgate.view(ctx.shape)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        flat, table = ids.detach().contiguous().view(-1), plain(weight)
        y = table.new_empty(flat.shape[0], table.shape[1])
        call("embedding_forward", flat, table, y)
        ctx.save_for_backward(flat)
        ctx.table_shape = weight.shape
        return y.view(*ids.shape, table.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        (flat,) = ctx.saved_tensors
        dweight = grad_outputs[0].new_empty(ctx.table_shape)
        call("embedding_backward", flat, _rows(grad_outputs[0]), dweight)
        return None, dweight
