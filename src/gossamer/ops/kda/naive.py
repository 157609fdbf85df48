"""Kimi Delta Attention, the definition: one token, one head, one sequence at a time, in float32.

Shape legend: B batch, T tokens, H heads, K key channels, V value channels, S state [K, V].
"""

from __future__ import annotations

import torch
from torch import Tensor


def naive_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S = diag(exp(g_t)) S; S = S + beta_t k_t (v_t - k_t^T S)^T; o_t = S^T q_t.

    The decay comes before the delta rule's read of the state.

    Args:
        q: [B, T, H, K], L2-normalised and scaled by K^-0.5.
        k: [B, T, H, K], L2-normalised.
        v: [B, T, H, V].
        g: [B, T, H, K], log decay, at most 0.
        beta: [B, T, H], write strength in (0, 1).
        state: [B, H, K, V] or None for zeros.

    Returns:
        o [B, T, H, V] and the state after the last token [B, H, K, V], both float32.
    """
    batch, tokens, heads, width = q.shape
    outputs, states = [], []
    for b in range(batch):
        for h in range(heads):
            s = torch.zeros(width, v.shape[-1]) if state is None else state[b, h].float()
            for t in range(tokens):
                q_t, k_t, v_t = q[b, t, h].float(), k[b, t, h].float(), v[b, t, h].float()
                s = g[b, t, h].float().exp().unsqueeze(-1) * s
                error = v_t - k_t @ s
                s = s + beta[b, t, h].float() * torch.outer(k_t, error)
                outputs.append(q_t @ s)
            states.append(s)
    o = torch.stack(outputs).reshape(batch, heads, tokens, -1).transpose(1, 2)
    return o, torch.stack(states).reshape(batch, heads, width, -1)
