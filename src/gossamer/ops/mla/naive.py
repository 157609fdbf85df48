"""The definition of latent attention, one head and one query at a time, in float32.

Shape legend: B batch, T queries, S cached tokens (the queries are the last T of them), H heads,
N "nope" width, P "rope" width (never rotated), R latent rank, V value width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def naive_attention(
    q: Tensor, latent: Tensor, shared_key: Tensor, w_kv: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """Softmax over allowed s of (q_nope . k_nope_s + q_rope . shared_key_s) (N+P)^-0.5, then the mean of v_s.

    Args:
        q: [B, T, H, N+P].
        latent: [B, S, R], normed.
        shared_key: [B, S, P], one for all heads.
        w_kv: [H*(N+V), R], rows head-major, in each head k_nope first then v.
        allowed: [B, T, S] bool inside the causal range, or None for the whole causal range.

    Returns:
        [B, T, H, V] float32.
    """
    batch, queries, heads, width = q.shape
    cached, nope = latent.shape[1], width - shared_key.shape[-1]
    weight = w_kv.float().reshape(heads, -1, latent.shape[-1])
    out = []
    for b in range(batch):
        for t in range(queries):
            visible = [
                s for s in range(cached - queries + t + 1) if allowed is None or bool(allowed[b, t, s])
            ]
            for h in range(heads):
                scores, values = [], []
                for s in visible:
                    kv = weight[h] @ latent[b, s].float()
                    key = torch.cat([kv[:nope], shared_key[b, s].float()])
                    scores.append((q[b, t, h].float() * key).sum() * width**-0.5)
                    values.append(kv[nope:])
                p = torch.softmax(torch.stack(scores), 0)
                out.append((p.unsqueeze(-1) * torch.stack(values)).sum(0))
    return torch.stack(out).reshape(batch, queries, heads, -1)
