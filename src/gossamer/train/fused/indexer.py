"""The lightning indexer on native kernels: selection, loss with gradients, attention over the selection.

What `gossamer.ops.dsa` defines, without a [T, T] tensor.  Shape legend: B batch, T tokens, J indexer heads,
I indexer head width, H attention heads, N "nope" and P "rope" widths of a key, V value width.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.train.fused.attention import Selection, selection_bytes
from gossamer.train.fused.native import call


class Index(NamedTuple):
    """What the indexer scores with: queries [B, T, J, I], keys [B, T, I], weights [B, T, J], float32."""

    queries: Tensor
    keys: Tensor
    weights: Tensor


class Sizes(NamedTuple):
    """Attention heads H, width N of a key's own part, width V of a value, and keys a query may select."""

    num_heads: int
    nope: int
    v_width: int
    top_k: int


def select(index_q: Tensor, index_k: Tensor, index_w: Tensor, top_k: int) -> Selection:
    """The top_k keys of each query: higher score first, then lower token index; all of them while they fit.

    Args:
        index_q: [B, T, J, I] float32.
        index_k: [B, T, I] float32.
        index_w: [B, T, J] float32; may be negative.
        top_k: How many keys a query may attend to.

    Raises:
        ValueError: shapes do not fit each other, or top_k is not positive.
    """
    inputs = [x.detach().contiguous() for x in (index_q, index_k, index_w)]
    bits = _empty_bits(index_q)
    call("indexer_select", *inputs, top_k, bits)
    return Selection(bits)


def select_from_scores(scores: Tensor, top_k: int) -> Selection:
    """`gossamer.ops.dsa.select_mask` of scores [B, T, T], -inf for future tokens."""
    batch, tokens = scores.shape[:2]
    visible = torch.arange(1, tokens + 1).repeat(batch)
    bits = torch.empty(batch, tokens, selection_bytes(tokens), dtype=torch.uint8)
    call("indexer_select_scores", scores.detach().flatten(0, 1).contiguous(), visible, top_k, bits)
    return Selection(bits)


def indexed_attention(
    q: Tensor, kv: Tensor, shared_key: Tensor, index: Index, sizes: Sizes, *, sparse: bool
) -> tuple[Tensor, Tensor, float]:
    """Attention, the indexer's loss and its recall in one pass.

    Args:
        q: [B, T, H, N+P] float32.
        kv: [B, T, H*(N+V)] float32, as for `gossamer.train.fused.attention.attention`.
        shared_key: [B, T, P] float32.
        index: What the indexer scores with.
        sizes: H, N, V and top_k.
        sparse: Attend to the indexer's selection alone, and take the loss over it; else to all visible keys.

    Returns:
        The attention [B, T, H*V], differentiable in q, kv and shared_key; the loss of
        `gossamer.ops.dsa.indexer_kl_loss` (mean over queries), a scalar differentiable in the index alone;
        and the recall: the share of dense attention's mass that lies on the selection, mean over heads and
        over the queries with more than top_k keys (1 if there are none).

    Raises:
        ValueError: shapes do not fit each other, or top_k is not positive.
    """
    out, loss, recall = _IndexedAttention.apply(q, kv, shared_key, *index, sizes, sparse)
    return out, loss, recall.item()


class _IndexedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        kv: Tensor,
        shared_key: Tensor,
        index_q: Tensor,
        index_k: Tensor,
        index_w: Tensor,
        sizes: Sizes,
        sparse: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs = [x.detach().contiguous() for x in (q, kv, shared_key)]
        index = [x.detach().contiguous() for x in (index_q, index_k, index_w)]
        batch, tokens = q.shape[:2]
        out = torch.empty(batch, tokens, sizes.num_heads * sizes.v_width)
        lse = torch.empty(batch, sizes.num_heads, tokens)
        bits = _empty_bits(q)
        gradients = [torch.empty_like(x) for x in index]
        loss, recall = call(
            "indexer_attention",
            *inputs,
            *sizes[:3],
            *index,
            sizes.top_k,
            sparse,
            True,
            bits,
            out,
            lse,
            *gradients,
        )
        ctx.save_for_backward(*inputs, out, lse, *gradients)
        ctx.sizes, ctx.bits = sizes, bits if sparse else None
        share = torch.tensor(recall, dtype=torch.float64)
        ctx.mark_non_differentiable(share)
        return out, torch.tensor(loss, dtype=torch.float32), share

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, shared_key, out, lse, *gradients = ctx.saved_tensors
        inputs = (q, kv, shared_key)
        d_inputs = tuple(torch.empty_like(x) for x in inputs)
        d_out = grads[0].detach().contiguous()
        call("attention_backward", *inputs, *ctx.sizes[:3], ctx.bits, out.detach(), lse, d_out, *d_inputs)
        return *d_inputs, *(x * grads[1] for x in gradients), None, None


def _empty_bits(q: Tensor) -> Tensor:
    batch, tokens = q.shape[:2]
    return torch.empty(batch, tokens, selection_bytes(tokens), dtype=torch.uint8)
