"""Latent attention on native kernels: the causal softmax of `gossamer.ops.mla.expanded` and its gradients.

Shape legend: B batch, T tokens, H heads, N "nope" and P "rope" widths of a key, V value width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer.train.fused.native import call


@dataclass(frozen=True)
class Selection:
    """The keys that each query attends to.

    Attributes:
        bits: [B, T, bytes] uint8, bit b of byte i is key 8 i + b; bytes is ceil(T / 8) rounded up to 8.
            Set bits lie in the causal range, at least one per query.
    """

    bits: Tensor

    def mask(self) -> Tensor:
        """The same as [B, T, T] bool."""
        places = torch.arange(8, dtype=torch.uint8)
        spread = (self.bits.unsqueeze(-1) >> places) & 1
        return spread.flatten(-2)[..., : self.bits.shape[1]].bool()

    @staticmethod
    def from_mask(mask: Tensor) -> Selection:
        """From [B, T, T] bool within the causal range."""
        width = selection_bytes(mask.shape[-1]) * 8
        wide = torch.zeros(*mask.shape[:-1], width, dtype=torch.uint8)
        wide[..., : mask.shape[-1]] = mask
        bytes_ = wide.unflatten(-1, (-1, 8)) << torch.arange(8, dtype=torch.uint8)
        return Selection(bytes_.sum(-1, dtype=torch.uint8))


def attention(
    q: Tensor,
    kv: Tensor,
    shared_key: Tensor,
    *,
    num_heads: int,
    nope: int,
    v_width: int,
    allowed: Selection | None = None,
) -> Tensor:
    """Softmax over the allowed keys of q . (k_nope, shared_key) (N+P)^-0.5, then the mean of the values.

    Args:
        q: [B, T, H, N+P] float32.
        kv: [B, T, H*(N+V)] float32, head-major, in each head k_nope first then v: kv_b_proj of the latent.
        shared_key: [B, T, P] float32, one for all heads.
        num_heads: H.
        nope: N.
        v_width: V.
        allowed: The keys of each query; None for its own and all earlier ones.

    Returns:
        [B, T, H*V] float32, differentiable in q, kv and shared_key.

    Raises:
        ValueError: shapes do not fit each other.
    """
    out: Tensor = _Attention.apply(
        q, kv, shared_key, (num_heads, nope, v_width), None if allowed is None else allowed.bits
    )
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, kv: Tensor, shared_key: Tensor, sizes: tuple[int, int, int], bits: Tensor | None
    ) -> Tensor:
        q, kv, shared_key = (x.detach().contiguous() for x in (q, kv, shared_key))
        heads, _, value = sizes
        batch, tokens = q.shape[:2]
        out = torch.empty(batch, tokens, heads * value)
        lse = torch.empty(batch, heads, tokens)
        call("attention_forward", q, kv, shared_key, *sizes, bits, out, lse)
        ctx.save_for_backward(q, kv, shared_key, out, lse)
        ctx.sizes, ctx.bits = sizes, bits
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, shared_key, out, lse = ctx.saved_tensors
        inputs = (q, kv, shared_key)
        d_inputs = tuple(torch.empty_like(x) for x in inputs)
        d_out = grads[0].detach().contiguous()
        call("attention_backward", *inputs, *ctx.sizes, ctx.bits, out.detach(), lse, d_out, *d_inputs)
        return *d_inputs, None, None


def selection_bytes(tokens: int) -> int:
    """Bytes of one query's bits over `tokens` keys: whole groups of 64 keys."""
    return (tokens + 63) // 64 * 8
