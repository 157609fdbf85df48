"""Latent attention with keys and values written out per head; the form for training and long prompts.

Shape legend: as in naive.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def head_keys_values(
    latent: Tensor, shared_key: Tensor, w_kv: Tensor, heads: int, nope: int
) -> tuple[Tensor, Tensor]:
    """Keys [B, H, S, N+P] and values [B, H, S, V] of every head."""
    kv = F.linear(latent, w_kv).unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, H, S, N+V]
    shared = shared_key.to(kv.dtype).unsqueeze(1).expand(-1, heads, -1, -1)
    return torch.cat([kv[..., :nope], shared], -1), kv[..., nope:]


def causal_mask(queries: int, cached: int) -> Tensor:
    """[T, S] bool: query t may see the tokens up to its own, which is number S-T+t."""
    return torch.ones(queries, cached, dtype=torch.bool).tril(cached - queries)


def attention_weights(q: Tensor, keys: Tensor, allowed: Tensor | None) -> Tensor:
    """softmax(q k^T (N+P)^-0.5) over the allowed tokens, float32.

    Args:
        q: [B, T, H, N+P].
        keys: [B, H, S, N+P].
        allowed: [B, T, S] bool within the causal range, or None for all of it.

    Returns:
        [B, H, T, S] float32.
    """
    queries, cached = q.shape[1], keys.shape[2]
    scores = torch.matmul(q.transpose(1, 2) * q.shape[-1] ** -0.5, keys.transpose(-1, -2)).float()
    mask = causal_mask(queries, cached) if allowed is None else allowed.unsqueeze(1)
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)


def expanded_attention(
    q: Tensor, latent: Tensor, shared_key: Tensor, w_kv: Tensor, allowed: Tensor | None = None
) -> Tensor:
    """As `gossamer.ops.mla.naive.naive_attention`, vectorised; the result has q's dtype."""
    heads, width = q.shape[2:]
    nope = width - shared_key.shape[-1]
    keys, values = head_keys_values(latent, shared_key, w_kv, heads, nope)
    values_width = values.shape[-1]
    if values_width < width:
        # The fused kernel needs equal widths; zero columns do not change the others.
        values = F.pad(values, (0, width - values_width))
    queries, cached = q.shape[1], keys.shape[2]
    whole = allowed is None and queries == cached
    if allowed is None and not whole:
        mask = causal_mask(queries, cached)
    else:
        mask = None if allowed is None else allowed.unsqueeze(1)
    out = F.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, attn_mask=mask, is_causal=whole, scale=width**-0.5
    )
    return out[..., :values_width].transpose(1, 2)
