"""Kimi Delta Attention token by token, vectorised over batch and heads; the form for decoding.

Shape legend: B batch, T tokens, H heads, K key channels, V value channels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kda_step(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One token: q, k, g [B, H, K], v [B, H, V], beta [B, H], state [B, H, K, V]; o [B, H, V], new state."""
    decayed = g.exp().unsqueeze(-1) * state
    read = torch.einsum("bhk,bhkv->bhv", k, decayed)
    write = beta.unsqueeze(-1) * (v - read)
    new = decayed + k.unsqueeze(-1) * write.unsqueeze(-2)
    return torch.einsum("bhk,bhkv->bhv", q, new), new


def recurrent_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`kda_step` over T tokens.  Arguments and results as in `gossamer.ops.kda.naive.naive_kda`."""
    q, k, v, g, beta = (x.float() for x in (q, k, v, g, beta))
    batch, tokens, heads, width = q.shape
    s = q.new_zeros(batch, heads, width, v.shape[-1]) if state is None else state.float()
    outputs = []
    with torch.autocast("cpu", enabled=False):
        for t in range(tokens):
            o, s = kda_step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], s)
            outputs.append(o)
    return torch.stack(outputs, 1), s
