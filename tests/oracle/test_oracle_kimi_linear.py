"""KDA, NoPE-MLA and the whole Kimi-Linear network against transformers, weights copied, in float32.

Shape legend: B batch, T tokens, D hidden width, R latent rank, P shared key width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import difference, within
from torch import Tensor, nn

from gossamer.checkpoint import CheckpointWriter
from gossamer.config import hf
from gossamer.config.model import KDAConfig, MLAConfig, ModelConfig, MoEConfig
from gossamer.model import Transformer
from gossamer.model.cache import KDAState
from gossamer.model.gated_dsa import GatedMLA
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.state_dict_adapter import to_checkpoint

pytestmark = pytest.mark.oracle
OUTSIDE = "transformers 5.24.0 kimi_linear"
WORKER = "transformers", "transformers_worker.py"
SPLIT = 11
"""Tokens of the first cached call; the rest follow one by one."""


def toy_config(*, q_lora_rank: int | None = None) -> ModelConfig:
    """Five layers of Kimi-Linear: three KDA, two full attention, one dense and four MoE feed-forwards."""
    return ModelConfig(
        name="toy-kimi-linear",
        family="kimi-linear",
        vocab_size=96,
        hidden_size=48,
        intermediate_size=80,
        num_layers=5,
        full_attention_layers=(2, 4),
        activation="silu",
        situ_beta=None,
        situ_linear_beta=None,
        attn_res_block_size=None,
        max_context=512,
        kda=KDAConfig(
            num_heads=3, head_dim=16, full_rank_gate=False, gate_lower_bound=None, a_log_multiple=1
        ),
        mla=MLAConfig(
            num_heads=3,
            q_lora_rank=q_lora_rank,
            kv_lora_rank=24,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=12,
            output_gate=False,
        ),
        moe=MoEConfig(
            num_experts=8,
            experts_per_token=3,
            num_shared_experts=1,
            intermediate_size=32,
            latent_size=None,
            routed_scaling_factor=2.446,
        ),
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )


def their_config(config: ModelConfig, kinds: list[str]) -> dict:
    """Keywords of transformers' own config class."""
    kda, mla, moe = config.kda, config.mla, config.moe
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "moe_intermediate_size": moe.intermediate_size,
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "num_attention_heads": mla.num_heads,
        "num_key_value_heads": mla.num_heads,
        "n_shared_experts": moe.num_shared_experts,
        "routed_scaling_factor": moe.routed_scaling_factor,
        "kv_lora_rank": mla.kv_lora_rank,
        "q_lora_rank": mla.q_lora_rank,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "num_experts_per_tok": moe.experts_per_token,
        "num_local_experts": moe.num_experts,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "linear_head_dim": kda.head_dim,
        "linear_num_heads": kda.num_heads,
        "linear_conv_kernel_dim": kda.conv_kernel_size,
        "pad_token_id": config.pad_token_id,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
    }


def randomise(module: nn.Module, seed: int) -> None:
    """Weights that leave no term at a neutral value: norms off one, biases off zero, decay of every size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("A_log"):
                p.copy_((1 + 3 * torch.rand(p.shape, generator=generator)).log())
            elif name.endswith("dt_bias"):
                p.copy_(noise - 1)
            elif name.endswith("e_score_correction_bias"):
                p.copy_(0.3 * noise)
            elif name.endswith("conv1d.weight"):
                p.copy_(0.5 * noise)
            elif name.endswith("k_norm.bias"):
                p.copy_(0.2 * noise)
            elif p.dim() == 1:
                p.copy_(1 + 0.2 * noise)
            elif name.endswith("embed_tokens.weight"):
                p.copy_(noise)
            else:
                p.copy_(noise * p.shape[-1] ** -0.5)


def weights(module: nn.Module) -> dict[str, np.ndarray]:
    return {f"w.{n}": p.detach().numpy() for n, p in module.named_parameters()}


def backward(y: Tensor, probe: Tensor, module: nn.Module, x: Tensor | None = None) -> dict[str, Tensor]:
    """Gradients of sum(y * probe), by the names the worker uses."""
    (y * probe).sum().backward()
    found = {f"grad.{n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
    return found if x is None else found | {"grad.x": x.grad}


def layer_case(kind: str, q_lora_rank: int | None = None) -> tuple[nn.Module, dict, dict[str, np.ndarray]]:
    """(our layer, options for the worker, its arrays)."""
    config = toy_config(q_lora_rank=q_lora_rank)
    full = kind == "full_attention"
    module = GatedMLA(config, 2) if full else KimiDeltaAttention(config)
    randomise(module, 7)
    x, probe = torch.randn(2, 90, config.hidden_size), torch.randn(2, 90, config.hidden_size)
    options = {"config": their_config(config, [kind]), "split": SPLIT}
    return module, options, {"x": x.numpy(), "probe": probe.numpy()} | weights(module)


def stepped(module: nn.Module, x: Tensor, cache) -> Tensor:
    """Prefill, then one token at a time."""
    with torch.no_grad():
        parts = [module(x[:, :SPLIT], cache)]
        parts += [module(x[:, t : t + 1], cache) for t in range(SPLIT, x.shape[1])]
    return torch.cat(parts, 1)


def hold_gradients(ours: dict, theirs: dict, mechanism: str, held: Callable, tolerance: str) -> None:
    names = {n for n in theirs if n.startswith("grad.")}
    assert names == set(ours), f"only one side has {names ^ set(ours)}"
    for n in sorted(names):
        held(ours[n], theirs[n].reshape(ours[n].shape), mechanism, "gradients", OUTSIDE, tolerance)


def test_kda_layer(ask, held) -> None:
    torch.manual_seed(20)
    module, options, arrays = layer_case("linear_attention")
    theirs = ask(*WORKER, "attention_layer", arrays, **options)
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    y = module(x)
    held(y, theirs["out"], "KDA layer", "output", OUTSIDE, "layer")
    gradients = backward(y, torch.from_numpy(arrays["probe"]), module, x)
    hold_gradients(gradients, theirs, "KDA layer", held, "layer_gradients")
    cache = KDAState(toy_config(), 2, torch.float32)
    held(
        stepped(module, x, cache), theirs["stepped"], "KDA layer", "output, token by token", OUTSIDE, "layer"
    )
    held(cache.state, theirs["state"], "KDA layer", "recurrent state", OUTSIDE, "layer")
    # Theirs keeps one input more than the next token needs, channels first.
    tail = theirs["conv"][:, :, 1:].transpose(0, 2, 1)
    held(cache.conv_tail, tail, "KDA layer", "convolution state", OUTSIDE, "layer")


@pytest.mark.parametrize("q_lora_rank", [None, 20])
def test_mla_layer(q_lora_rank: int | None, ask, held) -> None:
    torch.manual_seed(21)
    mechanism = "NoPE-MLA layer" if q_lora_rank is None else "NoPE-MLA layer, query latent"
    module, options, arrays = layer_case("full_attention", q_lora_rank)
    theirs = ask(*WORKER, "attention_layer", arrays, **options)
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    y = module(x)
    held(y, theirs["out"], mechanism, "output", OUTSIDE, "layer")
    gradients = backward(y, torch.from_numpy(arrays["probe"]), module, x)
    hold_gradients(gradients, theirs, mechanism, held, "layer_gradients")
    cache = Transformer(toy_config(q_lora_rank=q_lora_rank)).new_cache(2).latent(2)
    held(stepped(module, x, cache), theirs["stepped"], mechanism, "token by token", OUTSIDE, "layer")
    held(cache.latent, theirs["latent"], mechanism, "cached latent", OUTSIDE, "layer")
    held(cache.shared_key, theirs["key_part"], mechanism, "cached shared key", OUTSIDE, "layer")


def model_case(seed: int) -> tuple[Transformer, Tensor, Tensor]:
    config = toy_config()
    model = Transformer(config)
    randomise(model, seed)
    torch.manual_seed(seed)
    # No padding token: transformers gives its embedding row no gradient, ours is a row like any other.
    ids = torch.randint(3, config.vocab_size, (2, 70))
    return model, ids, torch.randn(2, 70, config.vocab_size) / 70


@pytest.mark.parametrize("seed", [30, 31])
def test_whole_model(seed: int, ask, held) -> None:
    model, ids, probe = model_case(seed)
    kinds = ["full_attention" if k == "full" else "linear_attention" for k in model.config.layer_types]
    arrays = {"ids": ids.numpy(), "probe": probe.numpy()} | weights(model)
    theirs = ask(*WORKER, "model", arrays, config=their_config(model.config, kinds), split=SPLIT)
    mechanism = "Kimi-Linear, whole model"
    logits = model(ids)
    held(logits, theirs["logits"], mechanism, "logits", OUTSIDE, "model")
    hold_gradients(backward(logits, probe, model), theirs, mechanism, held, "model_gradients")
    cache = model.new_cache(2)
    with torch.no_grad():
        parts = [model(ids[:, :SPLIT], cache)]
        parts += [model(ids[:, t : t + 1], cache) for t in range(SPLIT, ids.shape[1])]
    held(torch.cat(parts, 1), theirs["stepped"], mechanism, "logits, token by token", OUTSIDE, "model")
    for i, kind in enumerate(model.config.layer_types):
        if kind == "kda":
            state = theirs[f"cache.{i}.state"]
            held(cache.kda(i).state, state, mechanism, "recurrent state", OUTSIDE, "model")
        else:
            latent = theirs[f"cache.{i}.latent"]
            held(cache.latent(i).latent, latent, mechanism, "cached latent", OUTSIDE, "model")


def test_checkpoint_is_read_by_transformers(tmp_path: Path, ask, held) -> None:
    """Their loader reads what we write as a published checkpoint without a missing or odd name."""
    model, ids, _ = model_case(32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "A_log" not in name and "dt_bias" not in name:
                p.copy_(p.bfloat16().float())  # what the file holds
    hf.write(model.config, tmp_path)
    with CheckpointWriter(tmp_path, shard_bytes=100_000) as writer:
        for name, array, dtype in to_checkpoint(model):
            writer.add(name, array, dtype)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    theirs = ask(*WORKER, "checkpoint", {"ids": ids.numpy()}, folder=str(tmp_path))
    with torch.no_grad():
        logits = model(ids)
    held(logits, theirs["logits"], "Kimi-Linear checkpoint written here", "logits", OUTSIDE, "model")


def mutated(module: nn.Module, kind: str) -> nn.Module:
    """The layer with one term of its definition changed."""
    if kind == "no output gate":
        module.o_norm.forward = lambda o, gate, eps: type(module.o_norm).forward(
            module.o_norm, o, gate * 0, eps
        )
    elif kind == "taps reversed":
        with torch.no_grad():
            module.q_conv1d.weight.copy_(module.q_conv1d.weight.flip(-1).clone())
    elif kind == "bounded gate":
        module.config = replace(module.config, gate_lower_bound=-5.0)
    elif kind == "no dt_bias":
        nn.init.zeros_(module.dt_bias)
    elif kind == "latent not normed":
        module.kv_a_layernorm = nn.Identity()
    else:
        assert kind == "value before key"
        rows = module.kv_b_proj.weight.detach().unflatten(0, (module.config.num_heads, -1))
        swapped = rows.roll(module.config.v_head_dim, 1).flatten(0, 1)
        module.kv_b_proj.weight = nn.Parameter(swapped)
    return module


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        ("linear_attention", "no output gate"),
        ("linear_attention", "taps reversed"),
        ("linear_attention", "bounded gate"),
        ("linear_attention", "no dt_bias"),
        ("full_attention", "latent not normed"),
        ("full_attention", "value before key"),
    ],
)
def test_a_broken_layer_is_seen(layer: str, kind: str, ask) -> None:
    torch.manual_seed(22)
    module, options, arrays = layer_case(layer)
    theirs = ask(*WORKER, "attention_layer", arrays, **options)
    with torch.no_grad():
        x = torch.from_numpy(arrays["x"])
        assert within(difference(module(x), theirs["out"]), "layer")
        broken = difference(mutated(module, kind)(x), theirs["out"])
    assert not within(broken, "layer")
    assert broken.rel_rms > 0.01
