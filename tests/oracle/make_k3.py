"""A random checkpoint of the K3 architecture in the published layout, written by this package's own writer.

    python tests/oracle/make_k3.py FOLDER --shape small --experts mxfp4

llama.cpp has no sparse layers, so the shapes have none.  It takes rms_norm_eps for the latent norms and the
query and key normalisation too, where the reference code uses 1e-6; the configs here say what it does.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

import torch
from plain_tokenizer import write_tokenizer

from gossamer.checkpoint import CheckpointWriter
from gossamer.config import hf
from gossamer.config.model import KDAConfig, MLAConfig, ModelConfig, MoEConfig, QuantConfig
from gossamer.model import Transformer
from gossamer.model.state_dict_adapter import to_checkpoint

ExpertFormat = Literal["mxfp4", "bf16"]
VOCAB_SIZE = 320
LLAMA_EPS = 1e-5


def _config(
    name: str,
    experts: ExpertFormat,
    *,
    layers: int,
    full: tuple[int, ...],
    block: int,
    heads: int,
    hidden: int,
) -> ModelConfig:
    return ModelConfig(
        name=name,
        family="k3",
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_layers=layers,
        full_attention_layers=full,
        activation="situ",
        attn_res_block_size=block,
        max_context=1024,
        kda=KDAConfig(num_heads=heads, head_dim=32, l2_norm_eps=LLAMA_EPS),
        mla=MLAConfig(
            num_heads=heads,
            q_lora_rank=48,
            kv_lora_rank=64,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=24,
            lora_norm_eps=LLAMA_EPS,
        ),
        moe=MoEConfig(
            num_experts=4 * heads,
            experts_per_token=heads,
            num_shared_experts=heads // 2,
            intermediate_size=64,
            latent_size=96,
        ),
        quant=QuantConfig(expert_format=experts) if experts == "mxfp4" else None,
        bos_token_id=VOCAB_SIZE - 4,
        eos_token_id=VOCAB_SIZE - 2,
        pad_token_id=VOCAB_SIZE - 1,
    )


def config(shape: str, experts: ExpertFormat) -> ModelConfig:
    """small: five layers, two of full attention.  deep: nine in three blocks, the last two full attention."""
    if shape == "small":
        return _config(shape, experts, layers=5, full=(2, 4), block=2, heads=2, hidden=96)
    assert shape == "deep", shape
    return _config(shape, experts, layers=9, full=(3, 7, 8), block=4, heads=4, hidden=160)


def build(architecture: ModelConfig, seed: int) -> Transformer:
    """A model whose every term matters: norms off one, biases off zero, residual mixes far from a mean."""
    model = Transformer(architecture)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("A_log"):
                p.copy_((1 + 3 * torch.rand(p.shape, generator=generator)).log())
            elif name.endswith("dt_bias"):
                p.copy_(noise - 2)
            elif name.endswith("e_score_correction_bias"):
                p.copy_(0.2 * noise)
            elif name.endswith("conv1d.weight"):
                p.copy_(0.5 * noise)
            elif p.dim() == 1:
                p.copy_(1 + 0.2 * noise)
            else:
                gain = 2.0 if "lm_head" in name or name.endswith(("gate.weight", "_res_proj.weight")) else 1.0
                p.copy_(noise * gain * (1.0 if "embed_tokens" in name else p.shape[-1] ** -0.5))
    return model


def write(folder: Path, architecture: ModelConfig, seed: int) -> None:
    """Config, tokenizer and several shards."""
    folder.mkdir(parents=True, exist_ok=True)
    hf.write(architecture, folder)
    write_tokenizer(folder, VOCAB_SIZE)
    with CheckpointWriter(folder, shard_bytes=1_000_000) as writer:
        for name, array, dtype in to_checkpoint(build(architecture, seed)):
            writer.add(name, array, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=["small", "deep"], default="small")
    parser.add_argument("--experts", choices=["mxfp4", "bf16"], default="mxfp4")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write(arguments.folder, config(arguments.shape, arguments.experts), arguments.seed)


if __name__ == "__main__":
    main()
