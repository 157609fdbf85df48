"""Indexer scores, selection and the indexer's own loss, vectorised.

Shape legend: B batch, T queries, S cached tokens (the queries are the last T of them), J indexer heads,
D indexer head width, H attention heads, G selected slots.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.ops.mla.expanded import causal_mask


def index_scores(q: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """As `gossamer.ops.dsa.naive.naive_index_scores`, one head at a time over all queries."""
    with torch.autocast("cpu", enabled=False):
        queries, heads, width = q.shape[1:]
        keys_t = keys.float().transpose(-1, -2)  # [B, D, S]
        w = weights.float() * (heads * width) ** -0.5
        total = torch.zeros(q.shape[0], queries, keys.shape[1])
        for j in range(heads):
            dots = torch.matmul(q[:, :, j].float(), keys_t).relu()
            total = torch.addcmul(total, w[:, :, j : j + 1], dots)
        return total.masked_fill(~causal_mask(queries, keys.shape[1]), -torch.inf)


def select_mask(scores: Tensor, top_k: int) -> Tensor:
    """The selection as [B, T, S] bool: higher score, then lower token index.

    Args:
        scores: [B, T, S], -inf for future tokens.
        top_k: How many tokens a query may attend to.

    Returns:
        True at the selected tokens: min(top_k, visible) per query.
    """
    visible = scores > -torch.inf
    if scores.shape[-1] <= top_k:
        return visible
    threshold = scores.topk(top_k, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    selected = scores >= threshold
    if bool((selected.sum(-1) > top_k).any()):
        # torch.topk promises no order among equals: keep the earliest of the tokens at the threshold.
        above = scores > threshold
        tied = selected & ~above
        room = top_k - above.sum(-1, keepdim=True)
        selected = above | (tied & (tied.cumsum(-1) <= room))
    return selected & visible


def select_indices(scores: Tensor, top_k: int) -> Tensor:
    """`select_mask` as ascending token indices [B, T, min(top_k, S)] int64, -1 in unused slots."""
    cached = scores.shape[-1]
    slots = min(top_k, cached)
    positions = torch.where(select_mask(scores, top_k), torch.arange(cached), cached)
    picked = positions.sort(-1).values[..., :slots]
    return picked.masked_fill(picked == cached, -1)


def indexer_kl_loss(scores: Tensor, attention: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Mean over queries of KL(p || softmax(scores)), p the head-summed attention made to sum to one.

    The target is detached: the loss trains the indexer alone.  Source: DeepSeek-V3.2's dense warm-up and
    sparse stages, which differ only in whether the tokens are all visible ones or the selected ones.

    Args:
        scores: [B, T, S], -inf for future tokens.
        attention: [B, H, T, S], softmax weights of the attention this indexer serves, zero where not allowed.
        allowed: [B, T, S] bool, the tokens both distributions live on; None for all visible ones.

    Returns:
        Scalar float32.
    """
    target = attention.detach().float().sum(1)
    target = target / target.sum(-1, keepdim=True)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    log_q = torch.log_softmax(scores.float(), -1)
    # 0 * -inf at invisible tokens would be NaN; there the target is zero and the term is left out.
    cross = target * log_q.masked_fill(target == 0, 0.0)
    return (torch.special.xlogy(target, target) - cross).sum(-1).mean()
