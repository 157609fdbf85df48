"""Attention residuals: each sub-layer reads a learned mixture of earlier block snapshots.

Shape legend: B batch, T tokens, D hidden width, n candidates (snapshots and the running prefix).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Mix(torch.autograd.Function):
    """y = sum_i p_i V_i, p = softmax(s), s_i = r_i (V_i . w), r_i = rsqrt(mean(V_i^2) + eps).

    With e_i = dy . V_i and ds = p (e - sum p e):
    dV_i = p_i dy + ds_i (r_i w - s_i r_i^2 V_i / D) and dw = sum_i ds_i r_i V_i.
    """

    @staticmethod
    def forward(ctx: Any, w: Tensor, eps: float, *candidates: Tensor) -> Tensor:
        values = [c.float() for c in candidates]
        inverse = torch.stack([torch.rsqrt(v.square().mean(-1) + eps) for v in values])  # [n, B, T]
        scores = torch.stack([torch.matmul(v, w) for v in values]).mul_(inverse)
        p = torch.softmax(scores, 0)
        out = p[0].unsqueeze(-1) * values[0]
        for i, value in enumerate(values[1:], 1):
            out.addcmul_(p[i].unsqueeze(-1), value)
        ctx.save_for_backward(w, inverse, scores, p, *candidates)
        return out.to(candidates[-1].dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyrefly: ignore[bad-override]
        w, inverse, scores, p, *candidates = ctx.saved_tensors
        grad = grad_outputs[0].float()
        values = [c.float() for c in candidates]
        e = torch.stack([(grad * v).sum(-1) for v in values])
        d_scores = p * (e - (p * e).sum(0))
        along_w = d_scores * inverse
        along_v = (d_scores * scores * inverse.square()).div_(-w.shape[0])
        grad_w = torch.zeros_like(w)
        grads = []
        for i, value in enumerate(values):
            d = p[i].unsqueeze(-1) * grad
            d.addcmul_(along_w[i].unsqueeze(-1), w).addcmul_(along_v[i].unsqueeze(-1), value)
            grad_w += torch.matmul(along_w[i].flatten(), value.flatten(0, -2))
            grads.append(d.to(candidates[i].dtype))
        return grad_w, None, *grads


def mix_naive(candidates: list[Tensor], norm_weight: Tensor, proj_weight: Tensor, eps: float) -> Tensor:
    """Softmax over candidates of their normalised projection; the raw values are mixed.

    The definition, one token at a time and in float32.  Arguments as in `mix`.
    """
    batch, tokens, _ = candidates[0].shape
    w = norm_weight.float() * proj_weight.float().reshape(-1)
    rows = []
    for b in range(batch):
        for t in range(tokens):
            values = [c[b, t].float() for c in candidates]
            scores = [(v * torch.rsqrt(v.square().mean() + eps) * w).sum() for v in values]
            p = torch.softmax(torch.stack(scores), 0)
            rows.append(sum((p[i] * v for i, v in enumerate(values)), torch.zeros_like(values[0])))
    return torch.stack(rows).reshape(candidates[0].shape).to(candidates[-1].dtype)


def mix(candidates: list[Tensor], norm_weight: Tensor, proj_weight: Tensor, eps: float) -> Tensor:
    """sum_i softmax_i(score_i) V_i with score_i = sum(V_i rsqrt(mean(V_i^2)+eps) norm_weight proj_weight).

    All in float32; with one candidate this is the identity.  There is no scale on the scores.

    Args:
        candidates: n tensors [B, T, D]: block snapshots in order, then the running prefix.
        norm_weight: [D].
        proj_weight: [1, D].
        eps: Added to the mean square.

    Returns:
        [B, T, D] in the prefix's dtype.
    """
    if len(candidates) == 1:
        return candidates[0]
    with torch.autocast("cpu", enabled=False):
        w = norm_weight.float() * proj_weight.float().reshape(-1)
        return _Mix.apply(w, eps, *candidates)
