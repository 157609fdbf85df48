"""Latent attention in the latent space: W_k moves into the query, W_v behind the sum; the form for decoding.

Shape legend: as in naive.py; G the number of gathered tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.ops.mla.expanded import causal_mask


def absorbed_attention(
    q: Tensor, latent: Tensor, shared_key: Tensor, w_kv: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """As `gossamer.ops.mla.naive.naive_attention`, on the cached latent itself; the result has q's dtype.

    Scores are (W_k^T q_nope . c + q_rope . shared_key) (N+P)^-0.5 and the output is W_v (sum p c).
    """
    with torch.autocast("cpu", enabled=False):
        cached = torch.cat([latent.float(), shared_key.float()], -1)  # [B, S, R+P]
        query, w_v = absorb(q, w_kv, latent.shape[-1], shared_key.shape[-1])
        mask = causal_mask(q.shape[1], cached.shape[1]) if allowed is None else allowed
        scores = torch.einsum("bthr,bsr->bhts", query, cached) * q.shape[-1] ** -0.5
        keep = mask if mask.dim() == 2 else mask.unsqueeze(1)
        p = torch.softmax(scores.masked_fill(~keep, -torch.inf), -1)
        mean = torch.einsum("bhts,bsr->bthr", p, latent.float())
        return torch.einsum("bthr,hvr->bthv", mean, w_v).to(q.dtype)


def absorb(q: Tensor, w_kv: Tensor, rank: int, rope: int) -> tuple[Tensor, Tensor]:
    """Query in the cache's space [B, T, H, R+P] and W_v [H, V, R], float32."""
    heads, width = q.shape[2:]
    nope = width - rope
    weight = w_kv.float().reshape(heads, -1, rank)
    q32 = q.float()
    moved = torch.einsum("bthn,hnr->bthr", q32[..., :nope], weight[:, :nope])
    return torch.cat([moved, q32[..., nope:]], -1), weight[:, nope:]


def gathered_attention(
    q: Tensor, latent: Tensor, shared_key: Tensor, w_kv: Tensor, indices: Tensor
) -> Tensor:
    """Absorbed attention that reads only the selected tokens.

    Args:
        q: [B, T, H, N+P].
        latent: [B, S, R].
        shared_key: [B, S, P].
        w_kv: [H*(N+V), R].
        indices: [B, T, G] int64, -1 in unused slots; at least one used slot per query.

    Returns:
        [B, T, H, V] in q's dtype.
    """
    with torch.autocast("cpu", enabled=False):
        rank = latent.shape[-1]
        rows, used = torch.arange(latent.shape[0]).view(-1, 1, 1), indices.clamp_min(0)
        # Gathered before they are joined: joining first would copy the whole cache at every step.
        picked = torch.cat([latent[rows, used].float(), shared_key[rows, used].float()], -1)  # [B, T, G, R+P]
        query, w_v = absorb(q, w_kv, rank, shared_key.shape[-1])
        scores = torch.einsum("bthr,btgr->bthg", query, picked) * q.shape[-1] ** -0.5
        p = torch.softmax(scores.masked_fill((indices < 0).unsqueeze(2), -torch.inf), -1)
        mean = torch.einsum("bthg,btgr->bthr", p, picked[..., :rank])
        return torch.einsum("bthr,hvr->bthv", mean, w_v).to(q.dtype)
