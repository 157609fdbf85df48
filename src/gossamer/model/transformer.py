"""The whole text network, top to bottom.

Shape legend: B batch, T tokens of this call, D hidden width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from gossamer.config.model import ModelConfig
from gossamer.model.attn_residual import mixed
from gossamer.model.cache import Cache
from gossamer.model.dense_mlp import DenseMLP
from gossamer.model.errors import ModelError
from gossamer.model.gated_dsa import AttentionMode, GatedMLA
from gossamer.model.init import initialise
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.latent_moe import ExpertOptions, ExpertStorage, LatentMoE
from gossamer.model.layers import Embedding, RMSNorm, linear
from gossamer.model.trace import Trace

FLOAT32_NAMES = ("A_log", "dt_bias", "e_score_correction_bias", "conv1d.weight", "o_norm.weight")
"""Endings of the parameters that stay float32 in a bfloat16 model."""


class DecoderLayer(nn.Module):
    """The parts of one layer; `Transformer.forward` connects them."""

    self_attention_res_norm: RMSNorm
    self_attention_res_proj: nn.Linear
    mlp_res_norm: RMSNorm
    mlp_res_proj: nn.Linear

    def __init__(self, config: ModelConfig, layer: int, options: ExpertOptions) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(hidden, eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        if config.attn_res_block_size:
            self.self_attention_res_norm = RMSNorm(hidden, eps)
            self.self_attention_res_proj = linear(hidden, 1)
            self.mlp_res_norm = RMSNorm(hidden, eps)
            self.mlp_res_proj = linear(hidden, 1)
        if config.layer_types[layer] == "kda":
            self.self_attn: KimiDeltaAttention | GatedMLA = KimiDeltaAttention(config)
        else:
            self.self_attn = GatedMLA(config, layer)
        if config.is_moe_layer(layer):
            self.block_sparse_moe = LatentMoE(config, layer, options)
        else:
            self.mlp = DenseMLP(config, config.intermediate_size)
        self.layer, self.is_moe = layer, config.is_moe_layer(layer)

    def attend(self, h: Tensor, cache: Cache | None, mode: AttentionMode, trace: Trace | None) -> Tensor:
        """The layer's attention on its normed input."""
        x = self.input_layernorm(h)
        if isinstance(self.self_attn, KimiDeltaAttention):
            return self.self_attn(x, None if cache is None else cache.kda(self.layer))
        return self.self_attn(x, None if cache is None else cache.latent(self.layer), mode=mode, trace=trace)

    def feed_forward(self, h: Tensor, trace: Trace | None) -> Tensor:
        """The layer's dense network or mixture of experts on its normed input."""
        x = self.post_attention_layernorm(h)
        return self.block_sparse_moe(x, trace) if self.is_moe else self.mlp(x)


class TextModel(nn.Module):
    """Everything but the output head; it exists for the published names."""

    output_attn_res_norm: RMSNorm
    output_attn_res_proj: nn.Linear

    def __init__(self, config: ModelConfig, options: ExpertOptions) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.embed_tokens = Embedding(config.vocab_size, hidden)
        self.layers = nn.ModuleList(DecoderLayer(config, i, options) for i in range(config.num_layers))
        self.norm = RMSNorm(hidden, eps)
        if config.attn_res_block_size:
            self.output_attn_res_norm = RMSNorm(hidden, eps)
            self.output_attn_res_proj = linear(hidden, 1)

    def decoder_layers(self) -> Iterator[DecoderLayer]:
        """The layers in order, with their type."""
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            yield layer


class Transformer(nn.Module):
    """The text network of K3, K3.1 and Kimi-Linear.

    Args:
        config: The architecture.
        experts: "dense" float experts (training) or "packed" MXFP4 bytes decoded when used.
        expert_fake_quant: Dense experts computed at the values MXFP4 would store, straight-through gradient.
        mxfp8_activations: Round both expert inputs to MXFP8; off as in the published checkpoint.
        seed: Of the random initial weights; None leaves them undefined, for a loader to fill.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        experts: ExpertStorage = "dense",
        expert_fake_quant: bool = False,
        mxfp8_activations: bool = False,
        seed: int | None = 0,
    ) -> None:
        super().__init__()
        self.config = config
        self.options = ExpertOptions(
            storage=experts, fake_quant=expert_fake_quant, mxfp8_activations=mxfp8_activations
        )
        self.model = TextModel(config, self.options)
        if not config.tie_word_embeddings:
            self.lm_head = linear(config.hidden_size, config.vocab_size)
        if seed is not None:
            initialise(self, seed)

    def forward(
        self,
        token_ids: Tensor,
        cache: Cache | None = None,
        *,
        logits_for: Literal["all", "last"] = "all",
        attention_mode: AttentionMode = "sparse",
        trace: Trace | None = None,
        embeddings: Tensor | None = None,
    ) -> Tensor:
        """Logits of every token, or of the last one.

        Args:
            token_ids: [B, T] int64, T >= 1.
            cache: Continue from it and update it in place; the result is that of one pass over everything.
            logits_for: "all" or "last".
            attention_mode: "sparse" as the model is defined; "dense" ignores the indexers.
            trace: Filled with what it asks for.
            embeddings: [B, T, D] that stand in for those of the tokens, such as rows of images among them.

        Returns:
            [B, T, V], or [B, 1, V] for "last".

        Raises:
            ModelError: token_ids is not [B, T] of known ids, or does not fit the cache.
        """
        self._check_inputs(token_ids, cache)
        block_size = self.config.attn_res_block_size
        prefix = self.model.embed_tokens(token_ids) if embeddings is None else embeddings  # [B, T, D]
        blocks: list[Tensor] = []
        for i, layer in enumerate(self.model.decoder_layers()):
            if block_size:
                if trace is not None:
                    trace.see_mix(i, [*blocks, prefix])
                h = mixed(prefix, blocks, layer.self_attention_res_norm, layer.self_attention_res_proj)
                fresh = i % block_size == 0
                if fresh:
                    blocks.append(prefix)  # the raw prefix, not its mix
                a = layer.attend(h, cache, attention_mode, trace).to(prefix.dtype)
                prefix = a if fresh else prefix + a  # the stream restarts at a block start
                m = mixed(prefix, blocks, layer.mlp_res_norm, layer.mlp_res_proj)
                prefix = prefix + layer.feed_forward(m, trace)
            else:
                prefix = prefix + layer.attend(prefix, cache, attention_mode, trace)
                prefix = prefix + layer.feed_forward(prefix, trace)
        if cache is not None:
            cache.length += token_ids.shape[1]
        if logits_for == "last":
            prefix, blocks = prefix[:, -1:], [block[:, -1:] for block in blocks]
        if block_size:
            if trace is not None:
                trace.see_mix(self.config.num_layers, [*blocks, prefix])
            prefix = mixed(prefix, blocks, self.model.output_attn_res_norm, self.model.output_attn_res_proj)
        h = self.model.norm(prefix)
        head = self.model.embed_tokens if self.config.tie_word_embeddings else self.lm_head
        return nn.functional.linear(h, head.weight)

    def new_cache(self, batch_size: int) -> Cache:
        """An empty cache for B sequences, in the model's dtype."""
        return Cache(self.config, batch_size, self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights outside the float32 set."""
        return self.model.embed_tokens.weight.dtype

    def cast(self, dtype: torch.dtype) -> Transformer:
        """Convert in place all but the float32 set; use this instead of ``.to(dtype)``."""
        for name, parameter in self.named_parameters():
            parameter.data = parameter.data.to(torch.float32 if name.endswith(FLOAT32_NAMES) else dtype)
        return self

    def _check_inputs(self, token_ids: Tensor, cache: Cache | None) -> None:
        if token_ids.dim() != 2 or token_ids.shape[1] < 1 or token_ids.dtype != torch.int64:
            got = f"{token_ids.dtype} {tuple(token_ids.shape)}"
            raise ModelError(f"token_ids must be int64 [batch, tokens >= 1], got {got}")
        low, high = token_ids.min().item(), token_ids.max().item()
        if low < 0 or high >= self.config.vocab_size:
            last = self.config.vocab_size - 1
            raise ModelError(f"token ids {low}..{high} are outside the vocabulary 0..{last}")
        if cache is not None and cache.batch_size != token_ids.shape[0]:
            raise ModelError(f"the cache holds {cache.batch_size} sequences, token_ids {token_ids.shape[0]}")
