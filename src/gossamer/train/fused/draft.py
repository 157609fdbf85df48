"""The draft head's training forward on fused kernels: `DraftHead.forward` for rows that start from nothing.

Shape legend: B rows, T tokens, D hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.model.draft import DraftHead
from gossamer.model.layers import RMSNorm
from gossamer.model.transformer import Transformer
from gossamer.train.fused import network
from gossamer.train.fused.linear import linear
from gossamer.train.fused.mlp import gated_mlp
from gossamer.train.fused.pointwise import rms_norm


def last_hidden(model: Transformer, ids: Tensor) -> Tensor:
    """`gossamer.model.draft.last_hidden` with sparse attention: ids [B, T] int64 -> [B, T, D] float32."""
    return network.hidden(model, ids, network.Ask(mode="sparse"))


def forward(head: DraftHead, embedded: Tensor, hidden: Tensor) -> Tensor:
    """`DraftHead.forward` without a cache: two [B, T, D] float32 -> [B, T, D]."""
    betas = (head.config.situ_beta or 1.0, head.config.situ_linear_beta)
    both = torch.cat([_norm(head.enorm, embedded), _norm(head.hnorm, hidden)], -1)
    y = linear(both, head.eh_proj.weight)
    y = y + network.kda(head.self_attn, _norm(head.input_layernorm, y))
    rows = _norm(head.post_attention_layernorm, y).flatten(0, -2)
    mlp = head.mlp
    out = gated_mlp(rows, mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight, *betas)
    return _norm(head.shared_head_norm, y + out.view(y.shape))


def _norm(norm: RMSNorm, x: Tensor) -> Tensor:
    return rms_norm(x.contiguous(), norm.weight, norm.eps)
