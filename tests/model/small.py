"""Small models of every family, with weights large enough that every mechanism shows in the logits."""

from dataclasses import replace

import torch

from gossamer.config import presets
from gossamer.config.model import DSAConfig, KDAConfig, MLAConfig, ModelConfig, MoEConfig
from gossamer.model import Transformer


def debug() -> ModelConfig:
    """K3.1 at toy size: attention residuals, indexers, latent experts, SiTU."""
    return presets.load("debug")


def debug_k3() -> ModelConfig:
    """The same without indexers."""
    config = debug()
    extra = {key: value for key, value in config.extra.items() if "quantization" in key}
    return replace(config, family="k3", dsa=None, extra=extra)


def kimi_linear() -> ModelConfig:
    """Kimi-Linear at toy size: residual stream, no latent, SiLU, low-rank gate, softplus decay, q_proj."""
    return ModelConfig(
        name="toy-kimi-linear",
        family="kimi-linear",
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_layers=4,
        full_attention_layers=(3,),
        activation="silu",
        situ_beta=None,
        situ_linear_beta=None,
        attn_res_block_size=None,
        kda=KDAConfig(
            num_heads=2, head_dim=16, full_rank_gate=False, gate_lower_bound=None, a_log_multiple=1
        ),
        mla=MLAConfig(
            num_heads=2,
            q_lora_rank=None,
            kv_lora_rank=16,
            qk_nope_head_dim=8,
            qk_rope_head_dim=8,
            v_head_dim=12,
            output_gate=False,
        ),
        moe=MoEConfig(
            num_experts=8,
            experts_per_token=2,
            num_shared_experts=1,
            intermediate_size=24,
            latent_size=None,
            routed_scaling_factor=2.446,
            num_groups=2,
            top_k_groups=1,
        ),
    )


FAMILIES = {"k3.1": debug, "k3": debug_k3, "kimi-linear": kimi_linear}


def lively(config: ModelConfig, *, seed: int = 0, **options) -> Transformer:
    """A model whose norms, biases and mixes are all away from their neutral start."""
    model = Transformer(config, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(noise * (0.1 if parameter.dim() > 1 else 0.2))
    return model


def tokens(config: ModelConfig, batch: int, count: int, seed: int = 0) -> torch.Tensor:
    """Random ids [batch, count]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (batch, count), generator=generator)


def without_choices(config: ModelConfig) -> ModelConfig:
    """Every expert and every token is used, so that rounding cannot flip a selection."""
    moe = replace(config.moe, experts_per_token=config.moe.num_experts, num_groups=1, top_k_groups=1)
    return replace(config if config.dsa is None else wide_index(config), moe=moe)


def wide_index(config: ModelConfig) -> ModelConfig:
    """The config with an indexer that never has to choose."""
    assert isinstance(config.dsa, DSAConfig)
    return replace(config, dsa=replace(config.dsa, top_k=4096))
