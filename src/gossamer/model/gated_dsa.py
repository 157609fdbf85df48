"""Gated latent attention, with a lightning indexer where the config gives the layer one (gated DSA).

Shape legend: B batch, T tokens, S cached tokens, D hidden width, H heads, N "nope" and P "rope" widths,
R latent rank, V value width, J indexer heads, I indexer head width.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gossamer.config.model import ConfigError, DSAConfig, ModelConfig
from gossamer.model.cache import LatentKV
from gossamer.model.layers import RMSNorm, joint_linear, linear
from gossamer.model.trace import Trace
from gossamer.ops.dsa import index_scores, indexer_kl_loss, select_block, select_indices, select_mask
from gossamer.ops.mla import absorbed_attention, attention_weights, expanded_attention, head_keys_values
from gossamer.ops.mla.absorbed import gathered_attention

AttentionMode = Literal["sparse", "dense"]
_ABSORBED_TOKENS = 8
_LONG = 16
"""Contexts of more than this many selections are gathered from; masking would compute every key."""
_GATHERED_QUERIES = 128


class GatedMLA(nn.Module):
    """Latent attention without positions; o_proj(attention * sigmoid(g_proj x))."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        mla, hidden = config.mla, config.hidden_size
        self.config, self.layer = mla, layer
        q_width = mla.num_heads * mla.qk_head_dim
        if mla.q_lora_rank is None:
            self.q_proj = linear(hidden, q_width)
        else:
            self.q_a_proj = linear(hidden, mla.q_lora_rank)
            self.q_a_layernorm = RMSNorm(mla.q_lora_rank, mla.lora_norm_eps)
            self.q_b_proj = linear(mla.q_lora_rank, q_width)
        self.kv_a_proj_with_mqa = linear(hidden, mla.latent_width)
        self.kv_a_layernorm = RMSNorm(mla.kv_lora_rank, mla.lora_norm_eps)
        kv_width = mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        self.kv_b_proj = linear(mla.kv_lora_rank, kv_width)
        if mla.output_gate:
            self.g_proj = linear(hidden, mla.num_heads * mla.v_head_dim)
        self.o_proj = linear(mla.num_heads * mla.v_head_dim, hidden)
        self.indexer: Indexer | None = None
        if config.dsa is not None and config.has_indexer(layer):
            if mla.q_lora_rank is None:
                raise ConfigError(
                    f"layer {layer}: an indexer reads the query latent, but q_lora_rank is unset"
                )
            self.indexer = Indexer(config.dsa, hidden, mla.q_lora_rank)

    def forward(
        self,
        x: Tensor,
        cache: LatentKV | None = None,
        *,
        mode: AttentionMode = "sparse",
        trace: Trace | None = None,
    ) -> Tensor:
        """X [B, T, D], the normed layer input, to [B, T, D]; continues from the cache and updates it."""
        mla = self.config
        projections = [self.kv_a_proj_with_mqa]
        projections.append(self.q_proj if mla.q_lora_rank is None else self.q_a_proj)
        if mla.output_gate:
            projections.append(self.g_proj)
        compressed, q, *gate = joint_linear(x, *projections)
        query_latent = None
        if mla.q_lora_rank is not None:
            query_latent = self.q_a_layernorm(q)
            q = self.q_b_proj(query_latent)
        q = q.unflatten(-1, (mla.num_heads, mla.qk_head_dim))  # [B, T, H, N+P]
        latent, shared_key = compressed.split([mla.kv_lora_rank, mla.qk_rope_head_dim], -1)
        latent = self.kv_a_layernorm(latent)
        index = None
        if self.indexer is not None and query_latent is not None:
            index = self.indexer(x, query_latent)
        if cache is not None:
            cache.append(latent, shared_key, None if index is None else index.keys)
            latent, shared_key = cache.latent.to(latent.dtype), cache.shared_key.to(latent.dtype)
            if index is not None:
                index = index._replace(keys=cache.index_keys)
        a = self._attend(q, latent, shared_key, index, mode, trace)
        a = a.flatten(-2)
        if mla.output_gate:
            a = a * torch.sigmoid(gate[0])
        return self.o_proj(a)

    def _attend(
        self,
        q: Tensor,
        latent: Tensor,
        shared_key: Tensor,
        index: IndexerOutput | None,
        mode: AttentionMode,
        trace: Trace | None,
    ) -> Tensor:
        """Attention of q [B, T, H, N+P] over the S cached tokens: dense, or over the indexer's selection."""
        want_loss = trace is not None and trace.want_indexer_loss
        w_kv = self.kv_b_proj.weight
        absorbed = q.shape[1] <= _ABSORBED_TOKENS and not want_loss
        if self.indexer is None or index is None:
            form = absorbed_attention if absorbed else expanded_attention
            return form(q, latent, shared_key, w_kv)
        top_k = self.indexer.config.top_k
        # While the whole context fits in the selection, sparse and dense are the same thing.
        sparse = mode == "sparse" and latent.shape[1] > top_k
        if not sparse and not want_loss:
            form = absorbed_attention if absorbed else expanded_attention
            return form(q, latent, shared_key, w_kv)
        if not (absorbed or want_loss or torch.is_grad_enabled()) and latent.shape[1] > _LONG * top_k:
            return self._attend_long(q, latent, shared_key, index, top_k)
        with torch.set_grad_enabled(want_loss and torch.is_grad_enabled()):
            scores = index_scores(index.queries, index.keys, index.weights)  # [B, T, S]
        if absorbed:
            return gathered_attention(q, latent, shared_key, w_kv, select_indices(scores, top_k))
        allowed = select_mask(scores.detach(), top_k) if sparse else None
        if trace is not None and want_loss:
            with torch.no_grad():
                keys, _ = head_keys_values(latent, shared_key, w_kv, q.shape[2], self.config.qk_nope_head_dim)
                weights = attention_weights(q, keys, allowed)
            trace.indexer_losses[self.layer] = indexer_kl_loss(scores, weights, allowed)
        return expanded_attention(q, latent, shared_key, w_kv, allowed)

    def _attend_long(
        self, q: Tensor, latent: Tensor, shared_key: Tensor, index: IndexerOutput, top_k: int
    ) -> Tensor:
        """The selection's attention in memory for a few queries' selected tokens; without gradient."""
        chosen = select_block(index.queries, index.keys, index.weights, top_k)
        parts = zip(q.split(_GATHERED_QUERIES, 1), chosen.split(_GATHERED_QUERIES, 1), strict=True)
        w_kv = self.kv_b_proj.weight
        return torch.cat(
            [gathered_attention(part, latent, shared_key, w_kv, some) for part, some in parts], 1
        )


class IndexerOutput(NamedTuple):
    """queries [B, T, J, I], keys [B, S, I], weights [B, T, J] float32 (the fixed scale is in the scores)."""

    queries: Tensor
    keys: Tensor
    weights: Tensor


class Indexer(nn.Module):
    """What the lightning indexer scores with.  Its inputs are detached: only its own loss trains it."""

    def __init__(self, config: DSAConfig, hidden: int, q_lora_rank: int) -> None:
        super().__init__()
        self.config = config
        self.wq_b = linear(q_lora_rank, config.num_heads * config.head_dim)
        self.wk = linear(hidden, config.head_dim)
        self.weights_proj = linear(hidden, config.num_heads)
        self.k_norm = IndexKeyNorm(config)

    def forward(self, x: Tensor, query_latent: Tensor) -> IndexerOutput:
        """Takes x [B, T, D], the normed input, and query_latent [B, T, q_lora_rank] of the main path."""
        x, query_latent = x.detach(), query_latent.detach()
        keys, weights = joint_linear(x, self.wk, self.weights_proj)
        queries = self.wq_b(query_latent).unflatten(-1, (self.config.num_heads, self.config.head_dim))
        return IndexerOutput(queries, self.k_norm(keys), weights.float())


class IndexKeyNorm(nn.Module):
    """LayerNorm (mean removed) of the indexer key; the bias exists only where the config says so."""

    def __init__(self, config: DSAConfig) -> None:
        super().__init__()
        self.eps = config.k_norm_eps
        self.weight = nn.Parameter(torch.ones(config.head_dim))
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(config.head_dim)) if config.k_norm_bias else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, I] to [B, T, I] in x's dtype, computed in float32."""
        bias = None if self.bias is None else self.bias.float()
        return F.layer_norm(x.float(), self.weight.shape, self.weight.float(), bias, self.eps).to(x.dtype)
