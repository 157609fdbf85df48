"""The selection for many queries over a long context, without a [T, S] table and without sorting S scores.

Shape legend: as in index.py; t queries of one slice, C chunks of the context.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.ops.dsa.index import select_mask

QUERIES, KEYS = 64, 4096
"""Sizes of the tiles in which scores are computed; one tile of four heads stays in cache."""
CHUNK = 32


def select_block(q: Tensor, keys: Tensor, weights: Tensor, top_k: int) -> Tensor:
    """As `select_indices` of `index_scores`, in memory for `QUERIES` rows of scores.

    The top_k best scores of a row lie in the top_k chunks with the best maxima, so only those are ranked.
    Rows where equal scores leave the choice of chunks open are selected from all their scores.

    Args:
        q: [B, T, J, D].
        keys: [B, S, D].
        weights: [B, T, J].
        top_k: How many tokens a query may attend to.

    Returns:
        Ascending token indices [B, T, min(top_k, S)] int64, -1 in unused slots.  No gradient.
    """
    batch, queries, heads, width = q.shape
    cached = keys.shape[1]
    out = torch.full((batch, queries, min(top_k, cached)), -1, dtype=torch.int64)
    # One table for all slices: fresh memory of this size would cost more than the arithmetic.
    table = torch.empty(min(queries, QUERIES), _padded(cached))
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        scaled = weights.float() * (heads * width) ** -0.5
        for b in range(batch):
            keys_t = keys[b].float().t()
            for start in range(0, queries, QUERIES):
                end = min(start + QUERIES, queries)
                first = cached - queries + start
                scores = table[: end - start, : _padded(first + end - start)]
                _score(q[b, start:end].float(), keys_t, scaled[b, start:end], first, scores)
                chosen = _best(scores, min(top_k, cached))
                out[b, start:end, : chosen.shape[-1]] = chosen
    return out


def _padded(tokens: int) -> int:
    """The tokens of as many whole chunks."""
    return -(-tokens // CHUNK) * CHUNK


def _score(q: Tensor, keys_t: Tensor, weights: Tensor, first: int, out: Tensor) -> None:
    """Write the scores of queries whose own tokens are number `first` and up; -inf where unseen.

    Args:
        q: [t, J, D].
        keys_t: [D, S].
        weights: [t, J], scale included.
        first: Token number of the first query.
        out: [t, C * CHUNK], C chunks holding the first + t visible tokens.
    """
    rows, heads = q.shape[:2]
    visible = first + rows
    by_head = q.transpose(0, 1).reshape(heads * rows, -1).contiguous()
    columns = weights.t().unsqueeze(-1)  # [J, t, 1]
    dots = torch.empty(heads * rows, min(KEYS, visible))
    for left in range(0, visible, KEYS):
        right = min(left + KEYS, visible)
        if right - left < dots.shape[1]:
            dots = dots.new_empty(heads * rows, right - left)
        parts = torch.mm(by_head, keys_t[:, left:right], out=dots).relu_().view(heads, rows, -1)
        total = torch.mul(parts[0], columns[0], out=out[:, left:right])
        for j in range(1, heads):
            total.addcmul_(parts[j], columns[j])
    future = torch.ones(rows, rows, dtype=torch.bool).triu(1)
    out[:, first:visible].masked_fill_(future, -torch.inf)
    out[:, visible:].fill_(-torch.inf)


def _best(scores: Tensor, top_k: int) -> Tensor:
    """Ascending indices [t, top_k] of the best scores [t, C * CHUNK], -1 in unused slots."""
    chunked = scores.view(scores.shape[0], -1, CHUNK)
    if chunked.shape[1] <= top_k:
        return _positions(select_mask(scores.unsqueeze(0), top_k)[0], top_k)
    maxima = chunked.amax(-1)  # [t, C]
    chunks = maxima.topk(top_k, dim=-1, sorted=False).indices
    candidates = chunked.gather(1, chunks.unsqueeze(-1).expand(-1, -1, CHUNK)).flatten(1)
    values, local = candidates.topk(top_k, dim=-1, sorted=False)
    threshold = values.amin(-1, keepdim=True)
    found = chunks.gather(1, local // CHUNK) * CHUNK + local % CHUNK
    found = found.sort(-1).values
    # Open where a further candidate, or a chunk left out, reaches the threshold; -inf is no score at all.
    left_out = maxima.scatter(1, chunks, -torch.inf).amax(-1, keepdim=True)
    is_open = ((candidates >= threshold).sum(-1, keepdim=True) > top_k) | (left_out == threshold)
    is_open |= threshold == -torch.inf
    rows = is_open.squeeze(-1).nonzero().squeeze(-1)
    if rows.numel():
        found[rows] = _positions(select_mask(scores[rows].unsqueeze(0), top_k)[0], top_k)
    return found


def _positions(mask: Tensor, slots: int) -> Tensor:
    """Column numbers of a [t, n] mask with at most `slots` set per row, as [t, slots], -1 where unused."""
    rows, columns = mask.nonzero(as_tuple=True)
    counts = mask.sum(-1)
    starts = counts.cumsum(0) - counts
    out = torch.full((mask.shape[0], slots), -1, dtype=torch.int64)
    out[rows, torch.arange(rows.numel()) - starts[rows]] = columns
    return out
