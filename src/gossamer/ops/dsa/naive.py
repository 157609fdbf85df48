"""The definition of the indexer, of the selection and of attention over it, in float32.

Shape legend: B batch, T queries, S cached tokens (the queries are the last T of them), J indexer heads,
D indexer head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.ops.mla.naive import naive_attention


def naive_index_scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """I[t, s] = sum_j w[t, j] (J D)^-0.5 relu(q[t, j] . k[s]); -inf for future tokens.

    Args:
        q: [B, T, J, D].
        keys: [B, S, D], one key for all heads.
        weights: [B, T, J]; may be negative.

    Returns:
        [B, T, S] float32.
    """
    batch, queries, heads, width = q.shape
    cached = keys.shape[1]
    out = torch.full((batch, queries, cached), -torch.inf)
    for b in range(batch):
        for t in range(queries):
            for s in range(cached - queries + t + 1):
                dots = q[b, t].float() @ keys[b, s].float()
                out[b, t, s] = (weights[b, t].float() * (heads * width) ** -0.5 * dots.relu()).sum()
    return out


def naive_select(scores: Tensor, top_k: int) -> Tensor:
    """The top_k tokens of each query as [B, T, S] bool: higher score first, then lower token index."""
    selected = torch.zeros_like(scores, dtype=torch.bool)
    for b in range(scores.shape[0]):
        for t in range(scores.shape[1]):
            row = scores[b, t].tolist()
            visible = [s for s, score in enumerate(row) if score != float("-inf")]
            for s in sorted(visible, key=lambda s: (-row[s], s))[:top_k]:
                selected[b, t, s] = True
    return selected


def naive_dsa(
    q: Tensor,
    latent: Tensor,
    shared_key: Tensor,
    w_kv: Tensor,
    index_q: Tensor,
    index_keys: Tensor,
    index_weights: Tensor,
    top_k: int,
) -> Tensor:
    """Latent attention over the selection alone; arguments of `naive_attention`, `naive_index_scores`."""
    allowed = naive_select(naive_index_scores(index_q, index_keys, index_weights), top_k)
    return naive_attention(q, latent, shared_key, w_kv, allowed)
