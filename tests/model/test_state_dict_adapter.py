from dataclasses import replace

import numpy as np
import pytest
import torch

from gossamer.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter
from gossamer.config import count, hf
from gossamer.model import Transformer
from gossamer.model.errors import ModelError
from gossamer.model.load import load
from gossamer.model.state_dict_adapter import load_checkpoint, to_checkpoint
from model.small import FAMILIES, debug, kimi_linear, lively, tokens, without_choices
from numerics import EXACT, assert_close, assert_within


def rounded(model):
    """Values that survive being stored: everything but A_log, dt_bias and the like is BF16 on disk."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16().float())
    return model.eval()


def write(model, folder, change=None, shard_bytes=10**9):
    with CheckpointWriter(folder, shard_bytes=shard_bytes) as writer:
        for name, array, dtype in to_checkpoint(model):
            entry = (name, array, dtype) if change is None else change(name, array, dtype)
            if entry is not None:
                writer.add(*entry)
    hf.write(model.config, folder / "config.json")
    return folder


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_written_checkpoint_has_exactly_the_published_inventory(family, tmp_path):
    model = lively(FAMILIES[family]())
    write(model, tmp_path, shard_bytes=100_000)
    with CheckpointReader.open(tmp_path) as reader:
        found = {i.name: (tuple(i.shape), i.dtype) for i in reader.infos()}
    assert found == {s.name: (s.shape, s.dtype) for s in count.tensors(model.config)}


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_round_trip_returns_every_value(family, tmp_path):
    model = rounded(lively(FAMILIES[family](), expert_fake_quant=family != "kimi-linear"))
    loaded = load(write(model, tmp_path))
    assert loaded.options.storage == ("dense" if family == "kimi-linear" else "packed")
    ids = tokens(model.config, 2, 30)
    # Fake-quantised training and the packed export are the same numbers, so the logits are the same bits.
    assert_within(loaded(ids), model(ids), EXACT, family)
    own = model.state_dict()
    for name, value in loaded.state_dict().items():
        if ".experts." not in name:
            assert torch.equal(value, own[name]), name
    again = {name: array for name, array, _ in to_checkpoint(loaded)}
    for name, array, _ in to_checkpoint(model):
        assert np.array_equal(array, again[name]), name


@torch.no_grad()
def test_packed_experts_equal_their_decoded_form(tmp_path):
    write(lively(without_choices(debug())), tmp_path)
    packed, dense = load(tmp_path), load(tmp_path, experts="dense")
    assert packed.options.storage == "packed"
    assert dense.options.storage == "dense"
    ids = tokens(packed.config, 2, 30)
    assert_within(packed(ids), dense(ids), EXACT, "packed")
    assert not any(p.dtype.is_floating_point for n, p in packed.state_dict().items() if ".experts." in n)
    half = load(tmp_path, dtype=torch.bfloat16)
    assert_close(half(ids[:, :10]), dense(ids[:, :10]), ("model", "bfloat16", "whole"))


@torch.no_grad()
def test_fake_quantisation_changes_the_logits_and_passes_the_gradient():
    model = lively(debug())
    fake = lively(debug(), expert_fake_quant=True)
    ids = tokens(model.config, 1, 12)
    assert (model(ids) - fake(ids)).abs().max() > 1e-3
    with torch.enable_grad():
        fake(ids).square().mean().backward()
    assert fake.model.layers[1].block_sparse_moe.experts.w1.grad.abs().sum() > 0


@torch.no_grad()
def test_mxfp8_activations_are_a_mode_that_is_off():
    model = lively(without_choices(debug()))
    rounded_inputs = lively(model.config, mxfp8_activations=True)
    ids = tokens(model.config, 1, 12)
    assert not model.options.mxfp8_activations
    assert_close(rounded_inputs(ids), model(ids), ("model", "float32", "mxfp8"))
    assert (rounded_inputs(ids) - model(ids)).abs().max() > 1e-4


def test_fake_quantisation_of_packed_experts_is_refused():
    with pytest.raises(ModelError, match="already MXFP4"):
        Transformer(debug(), experts="packed", expert_fake_quant=True)


@torch.no_grad()
@pytest.mark.parametrize("pad", [False, True])
def test_a_log_loads_padded_or_not(tmp_path, pad):
    config = debug()
    heads = config.kda.num_heads

    def change(name, array, dtype):
        if name.endswith("A_log"):
            assert array.shape == (128,)
            assert not array[heads:].any()
            array = array if pad else array[:heads].copy()
        return name, array, dtype

    model = lively(config)
    loaded = load(write(model, tmp_path, change))
    assert torch.equal(loaded.model.layers[0].self_attn.A_log, model.model.layers[0].self_attn.A_log)


@torch.no_grad()
def test_values_in_the_padding_are_refused(tmp_path):
    def change(name, array, dtype):
        if name.endswith("layers.1.self_attn.A_log"):
            array = array.copy()
            array[100] = 1.0
        return name, array, dtype

    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.A_log.*beyond its 2 heads"):
        load(write(lively(debug()), tmp_path, change))


CASES = {
    "missing": ("layers.2.self_attn.kv_b_proj.weight", lambda n, a, d: None, "no such tensor"),
    "shape": (
        "layers.0.mlp.gate_proj.weight",
        lambda n, a, d: (n, a[:-1].copy(), d),
        r"has shape \[95, 64\]",
    ),
    "dtype": ("model.norm.weight", lambda n, a, d: (n, a.astype(np.int32), "I32"), "has dtype I32"),
    "packed shape": (
        "layers.1.block_sparse_moe.experts.3.w2.weight_packed",
        lambda n, a, d: (n, a[:, 1:].copy(), d),
        r"has shape \[32, 15\], the model needs \[32, 16\]",
    ),
    "missing scale": (
        "layers.4.block_sparse_moe.experts.0.w1.weight_scale",
        lambda n, a, d: None,
        "no such tensor",
    ),
    "NaN scale": (
        "layers.4.block_sparse_moe.experts.0.w1.weight_scale",
        lambda n, a, d: (n, np.full_like(a, 255), d),
        "0xFF",
    ),
}


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_damage_is_one_error_naming_the_tensor(case, tmp_path):
    ending, damage, message = CASES[case]

    def change(name, array, dtype):
        return damage(name, array, dtype) if name.endswith(ending) else (name, array, dtype)

    with pytest.raises(ValueError, match=message) as caught:
        load(write(lively(debug()), tmp_path, change))
    assert ending in str(caught.value)


@torch.no_grad()
def test_unknown_tensors_are_reported(tmp_path):
    model = lively(debug())
    with CheckpointWriter(tmp_path) as writer:
        for entry in to_checkpoint(model):
            writer.add(*entry)
        writer.add("vision_tower.patch_embed.proj.weight", np.zeros((2, 3), np.float32), "F32")
    with CheckpointReader.open(tmp_path) as reader:
        report = load_checkpoint(Transformer(model.config, experts="packed", seed=None), reader)
    assert report.extras == ("vision_tower.patch_embed.proj.weight",)


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_the_file_decides_whether_the_index_norm_has_a_bias(tmp_path, bias):
    config = debug()
    model = lively(replace(config, dsa=replace(config.dsa, k_norm_bias=bias)))
    write(model, tmp_path)
    hf.write(replace(config, dsa=replace(config.dsa, k_norm_bias=None)), tmp_path / "config.json")
    loaded = load(tmp_path)
    assert loaded.config.dsa.k_norm_bias is bias
    assert (loaded.model.layers[2].self_attn.indexer.k_norm.bias is not None) is bias


@torch.no_grad()
def test_unpacked_experts_do_not_load_into_a_packed_model(tmp_path):
    config = replace(kimi_linear(), moe=replace(kimi_linear().moe, intermediate_size=32))
    write(lively(config), tmp_path)
    with (
        CheckpointReader.open(tmp_path) as reader,
        pytest.raises(CheckpointError, match="experts='dense'"),
    ):
        load_checkpoint(Transformer(config, experts="packed", seed=None), reader)
