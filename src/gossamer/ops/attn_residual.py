"""Attention residuals: each sub-layer reads a learned mixture of earlier block snapshots.

Shape legend: B batch, T tokens, D hidden width, n candidates (snapshots and the running prefix).
"""

from __future__ import annotations

import torch
from torch import Tensor


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
    w = norm_weight.float() * proj_weight.float().reshape(-1)
    scores = []
    for value in candidates:
        v = value.float()
        scores.append((v * w).sum(-1) * torch.rsqrt(v.square().mean(-1) + eps))
    p = torch.softmax(torch.stack(scores, -1), -1).unsqueeze(-2).unbind(-1)  # n of [B, T, 1]
    out = p[0] * candidates[0].float()
    for weight, value in zip(p[1:], candidates[1:], strict=True):
        out = torch.addcmul(out, weight, value.float())
    return out.to(candidates[-1].dtype)
