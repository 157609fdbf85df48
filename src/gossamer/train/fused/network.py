"""The forward pass of `gossamer.model` on fused kernels, for training rows that start from nothing.

It walks the modules of a `Transformer`, reads their parameters, and computes what their `forward` computes,
with one autograd node per mechanism.  There is no cache and no padding mask; float32 throughout.

Shape legend: B rows, T tokens, M = B*T, D hidden width, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from gossamer.model.dense_mlp import DenseMLP
from gossamer.model.gated_dsa import AttentionMode, GatedMLA, Indexer
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.latent_moe import LatentMoE
from gossamer.model.transformer import DecoderLayer, Transformer
from gossamer.train.errors import TrainError
from gossamer.train.fused.attention import attention
from gossamer.train.fused.head import head_loss
from gossamer.train.fused.indexer import Index, Sizes, indexed_attention, select
from gossamer.train.fused.kda import kda_mixer
from gossamer.train.fused.linear import joint_linear, linear
from gossamer.train.fused.mlp import gated_mlp
from gossamer.train.fused.moe import experts, route
from gossamer.train.fused.pointwise import embedding, gated, mix_norm, rms_norm

Betas = tuple[float, float | None]
ExpertWeights = Mapping[int, tuple[Tensor, Tensor, Tensor]]
"""Layer to (w1, w3, w2) to compute with, where they are not the parameters themselves."""


@dataclass(kw_only=True)
class Ask:
    """What one pass shall do, and what it found besides its result.

    Attributes:
        mode: "dense" or "sparse" attention.
        want_indexer_loss: collect `indexer_losses` and `recalls`.
        expert_weights: quantised experts, once per step instead of once per pass.
        indexer_losses: layer to scalar KL with gradients to the indexer alone.
        recalls: layer to the share of attention mass inside the indexer's selection.
        expert_loads: layer to [E] int64.
    """

    mode: AttentionMode = "dense"
    want_indexer_loss: bool = False
    expert_weights: ExpertWeights = field(default_factory=dict)
    indexer_losses: dict[int, Tensor] = field(default_factory=dict)
    recalls: dict[int, float] = field(default_factory=dict)
    expert_loads: dict[int, Tensor] = field(default_factory=dict)


def check(model: Transformer) -> None:
    """Refuse architectures that these kernels do not compute.

    Raises:
        TrainError: naming what is missing.
    """
    config = model.config
    wanted = {
        "attention residuals": bool(config.attn_res_block_size),
        "the SiTU activation": config.activation != "silu",
        "a full-rank KDA gate": config.kda.full_rank_gate,
        "an output gate in MLA": config.mla.output_gate,
        "a query latent": config.mla.q_lora_rank is not None,
        "latent experts with a norm": config.moe.latent_size is not None and config.moe.latent_norm,
        "shared experts": bool(config.moe.num_shared_experts),
        "one group of experts": config.moe.num_groups == 1,
        "an output head of its own": not config.tie_word_embeddings,
        "dense experts without MXFP8 activations": model.options.storage == "dense"
        and not model.options.mxfp8_activations,
    }
    missing = [name for name, there in wanted.items() if not there]
    if missing:
        raise TrainError(f"the fused training kernels need {', '.join(missing)}; train with --kernels torch")


def loss_sum(
    model: Transformer, ids: Tensor, targets: Tensor, ask: Ask, weights: Tensor | None = None
) -> Tensor:
    """Cross entropy in float32, summed over the targets [B, T] that are not -100; ids [B, T] int64.

    Args:
        model: whose loss is wanted.
        ids: [B, T] int64.
        targets: [B, T] int64.
        ask: what the pass shall do.
        weights: [B, T], of each target in the sum; few different ones, as each is a call of the kernel.
    """
    h, target = hidden(model, ids, ask).flatten(0, 1), targets.flatten()
    if weights is None:
        return head_loss(h, model.lm_head.weight, target)
    weight, asked = weights.flatten(), target >= 0
    total = (h * 0.0).sum()  # a gradient for every row, also where nothing is asked
    for value in weight[asked].unique():
        own = asked & (weight == value)
        total = total + head_loss(h[own], model.lm_head.weight, target[own]) * value
    return total


def logits(model: Transformer, ids: Tensor, ask: Ask) -> Tensor:
    """[B, T, V] of every token."""
    return linear(hidden(model, ids, ask), model.lm_head.weight)


def hidden(model: Transformer, ids: Tensor, ask: Ask, embeddings: Tensor | None = None) -> Tensor:
    """The normed output of the last layer, [B, T, D], that the head reads; see `Transformer.forward`."""
    text = model.model
    block_size = model.config.attn_res_block_size or 1
    betas = (model.config.situ_beta or 1.0, model.config.situ_linear_beta)
    prefix = embedding(ids, text.embed_tokens.weight) if embeddings is None else embeddings  # [B, T, D]
    blocks: list[Tensor] = []
    for i, layer in enumerate(text.decoder_layers()):
        x = mix_norm(
            [*blocks, prefix],
            layer.self_attention_res_norm.weight,
            layer.self_attention_res_proj.weight,
            layer.self_attention_res_norm.eps,
            layer.input_layernorm.weight,
            layer.input_layernorm.eps,
        )
        fresh = i % block_size == 0
        if fresh:
            blocks.append(prefix)
        a = _attend(layer, x, ask)
        prefix = a if fresh else prefix + a
        x = mix_norm(
            [*blocks, prefix],
            layer.mlp_res_norm.weight,
            layer.mlp_res_proj.weight,
            layer.mlp_res_norm.eps,
            layer.post_attention_layernorm.weight,
            layer.post_attention_layernorm.eps,
        )
        prefix = prefix + _feed_forward(layer, x, ask, betas)
    return mix_norm(
        [*blocks, prefix],
        text.output_attn_res_norm.weight,
        text.output_attn_res_proj.weight,
        text.output_attn_res_norm.eps,
        text.norm.weight,
        text.norm.eps,
    )


def _attend(layer: DecoderLayer, x: Tensor, ask: Ask) -> Tensor:
    if isinstance(layer.self_attn, KimiDeltaAttention):
        return kda(layer.self_attn, x)
    return _mla(layer.self_attn, layer.layer, x, ask)


def kda(m: KimiDeltaAttention, x: Tensor) -> Tensor:
    """`KimiDeltaAttention.forward` on [B, T, D], from an empty state."""
    q, k, v, f, gate, b = joint_linear(
        x,
        m.q_proj.weight,
        m.k_proj.weight,
        m.v_proj.weight,
        m.f_a_proj.weight,
        m.g_proj.weight,
        m.b_proj.weight,
    )
    o = kda_mixer(
        q,
        k,
        v,
        m.q_conv1d.weight,
        m.k_conv1d.weight,
        m.v_conv1d.weight,
        linear(f, m.f_b_proj.weight),
        m.dt_bias,
        m.A_log,
        b,
        gate,
        m.o_norm.weight,
        num_heads=m.config.num_heads,
        lower_bound=m.config.gate_lower_bound,
        l2_eps=m.config.l2_norm_eps,
        norm_eps=m.norm_eps,
    )
    return linear(o, m.o_proj.weight)


def _mla(m: GatedMLA, layer: int, x: Tensor, ask: Ask) -> Tensor:
    mla = m.config
    compressed, q, gate = joint_linear(x, m.kv_a_proj_with_mqa.weight, m.q_a_proj.weight, m.g_proj.weight)
    query_latent = rms_norm(q, m.q_a_layernorm.weight, m.q_a_layernorm.eps)
    q = linear(query_latent, m.q_b_proj.weight).unflatten(-1, (mla.num_heads, mla.qk_head_dim))
    latent, shared_key = compressed.split([mla.kv_lora_rank, mla.qk_rope_head_dim], -1)
    latent = rms_norm(latent.contiguous(), m.kv_a_layernorm.weight, m.kv_a_layernorm.eps)
    kv, shared_key = linear(latent, m.kv_b_proj.weight), shared_key.contiguous()
    sizes = {"num_heads": mla.num_heads, "nope": mla.qk_nope_head_dim, "v_width": mla.v_head_dim}
    sparse = m.indexer is not None and ask.mode == "sparse" and x.shape[1] > m.indexer.config.top_k
    if m.indexer is not None and (sparse or ask.want_indexer_loss):
        index = _index(m.indexer, x, query_latent)
        both = Sizes(top_k=m.indexer.config.top_k, **sizes)
        if ask.want_indexer_loss:
            a, kl, recall = indexed_attention(q, kv, shared_key, index, both, sparse=sparse)
            ask.indexer_losses[layer], ask.recalls[layer] = kl, recall
        else:
            q_i, k_i, w_i = (part.detach() for part in index)
            allowed = select(q_i, k_i, w_i, both.top_k)
            a = attention(q, kv, shared_key, allowed=allowed, **sizes)
    else:
        a = attention(q, kv, shared_key, **sizes)
    return linear(gated(a.view(gate.shape), gate), m.o_proj.weight)


def _index(indexer: Indexer, x: Tensor, query_latent: Tensor) -> Index:
    """What the indexer scores with, on detached inputs."""
    config, norm = indexer.config, indexer.k_norm
    keys, weights = joint_linear(x.detach(), indexer.wk.weight, indexer.weights_proj.weight)
    queries = linear(query_latent.detach(), indexer.wq_b.weight)
    keys = F.layer_norm(keys, norm.weight.shape, norm.weight, norm.bias, norm.eps)
    return Index(queries.unflatten(-1, (config.num_heads, config.head_dim)), keys, weights)


def _feed_forward(layer: DecoderLayer, x: Tensor, ask: Ask, betas: Betas) -> Tensor:
    if not layer.is_moe:
        return _mlp(layer.mlp, x, betas)
    return _moe(layer.block_sparse_moe, x, ask, betas)


def _mlp(m: DenseMLP, x: Tensor, betas: Betas) -> Tensor:
    rows = x.flatten(0, -2)
    y = gated_mlp(rows, m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight, *betas)
    return y.view(x.shape)


def _moe(m: LatentMoE, x: Tensor, ask: Ask, betas: Betas) -> Tensor:
    moe = m.config
    rows = x.flatten(0, -2)
    indices, weights = route(
        rows,
        m.gate.weight,
        m.gate.e_score_correction_bias,
        experts_per_token=moe.experts_per_token,
        renormalize=moe.renormalize,
        scaling=moe.routed_scaling_factor,
    )
    ask.expert_loads[m.layer] = torch.bincount(indices.flatten(), minlength=moe.num_experts)
    w1, w3, w2 = ask.expert_weights.get(m.layer, (m.experts.w1, m.experts.w3, m.experts.w2))
    z = linear(rows, m.routed_expert_down_proj.weight)
    y = experts(z, indices, weights, w1, w3, w2, *betas)
    y = rms_norm(y, m.routed_expert_norm.weight, m.routed_expert_norm.eps)
    y = linear(y, m.routed_expert_up_proj.weight)
    return y.view(x.shape) + _mlp(m.shared_experts, x, betas)
