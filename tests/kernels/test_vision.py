"""The numpy tower equals the torch one, at every shape of image; its pieces equal torch's operators."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.checkpoint import CheckpointError, CheckpointReader
from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.checkpoint.writer import CheckpointWriter
from gossamer.config import presets
from gossamer.kernels import vision as plain
from gossamer.kernels.network import NetworkError
from gossamer.model.vision import Vision, load_vision
from model.small_vision import lively_vision, toy
from numerics import assert_close

KEY = ("vision", "float32", "numpy")


def arrays(module):
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def noise(rows, columns, config, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(1, rows * columns, 3 * config.patch_size**2, generator=generator) * 2 - 1


@pytest.mark.parametrize("merge", [(2, 2), (1, 2)])
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (4, 6), (8, 8), (2, 14), (10, 4)])
def test_both_towers_agree(rows, columns, merge):
    config = toy(merge_size=merge)
    module = lively_vision(config)
    patches = noise(rows, columns, config)
    with torch.no_grad():
        want = module(patches, rows, columns)[0]
    got = plain.VisionNetwork(config, arrays(module).items()).run(patches[0].numpy(), rows, columns)
    assert got.dtype == np.float32
    assert_close(torch.from_numpy(got), want, KEY)


def test_attention_in_parts_is_attention(monkeypatch):
    config = toy()
    module = lively_vision(config)
    patches = noise(6, 8, config)
    network = plain.VisionNetwork(config, arrays(module).items())
    whole = network.run(patches[0].numpy(), 6, 8)
    monkeypatch.setattr(plain, "_SCORE_BYTES", 4 * 48 * 5)
    assert_close(torch.from_numpy(network.run(patches[0].numpy(), 6, 8)), torch.from_numpy(whole), KEY)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 30), st.integers(1, 30))
def test_positions_are_stretched_as_torch_does(high, wide, rows, columns):
    table = np.random.default_rng(0).standard_normal((high, wide, 3), np.float32)
    want = F.interpolate(
        torch.from_numpy(table).permute(2, 0, 1)[None], size=(rows, columns), mode="bilinear"
    )
    got = plain.stretch(table, rows, columns).reshape(rows, columns, 3)
    np.testing.assert_allclose(got, want[0].permute(1, 2, 0).numpy(), atol=2e-5)


def test_erf_and_both_gelus():
    x = np.concatenate([np.linspace(-7, 7, 20_001), [-np.inf, np.inf, 0.0, -0.0, 1e-30]]).astype(np.float32)
    exact = torch.erf(torch.from_numpy(x).double()).numpy()
    assert plain.erf(x).dtype == np.float32
    assert np.abs(plain.erf(x) - exact).max() <= 1.2e-7
    t = torch.from_numpy(x[:20_001])
    for ours, theirs in ((plain.gelu, "none"), (plain.gelu_tanh, "tanh")):
        np.testing.assert_allclose(ours(t.numpy()), F.gelu(t, approximate=theirs), atol=1e-6)


def test_a_checkpoint_reads_alike_in_both(tmp_path):
    base = presets.load("debug")
    config = replace(base, vision=toy(text_hidden_size=base.hidden_size))
    module = Vision(config.vision, seed=5)
    with CheckpointWriter(tmp_path) as writer:
        for name, array in arrays(module).items():
            writer.add(name, f32_to_bf16(np.ascontiguousarray(array)), "BF16")
        writer.finish()
    patches = noise(4, 4, config.vision)
    with CheckpointReader.open(tmp_path) as reader:
        assert plain.has_vision_weights(reader)
        network = plain.VisionNetwork(config.vision, plain.vision_weights(config, reader))
        with torch.no_grad():
            want = load_vision(config, reader)(patches, 4, 4)[0]
        assert_close(torch.from_numpy(network.run(patches[0].numpy(), 4, 4)), want, KEY)
        wider = replace(config, vision=toy(text_hidden_size=base.hidden_size + 4))
        for read in (load_vision, lambda *given: list(plain.vision_weights(*given))):
            with pytest.raises(CheckpointError, match=r"mm_projector\.proj\.2"):
                read(wider, reader)


@pytest.mark.slow
def test_both_towers_agree_at_the_published_size():
    """All 447 million weights, as BF16 in one and float32 in the other, with positions stretched."""
    config = presets.load("k3.1-pro").vision
    module = Vision(config, seed=1)
    stored = {name: f32_to_bf16(np.ascontiguousarray(array)) for name, array in arrays(module).items()}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.bfloat16())
        patches = noise(6, 4, config)
        want = module(patches, 6, 4)[0]
    assert want.shape == (6, 7168)
    assert_close(
        torch.from_numpy(plain.VisionNetwork(config, stored.items()).run(patches[0].numpy(), 6, 4)), want, KEY
    )


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "names"),
    [((4, 48), 2, 3, "patches must be"), ((9, 48), 3, 3, "do not merge"), ((4, 47), 2, 2, "patches must be")],
)
def test_shapes_that_do_not_fit_are_named(shape, rows, columns, names):
    config = toy()
    network = plain.VisionNetwork(config, arrays(lively_vision(config)).items())
    with pytest.raises(NetworkError, match=names):
        network.run(np.zeros(shape, np.float32), rows, columns)


def test_a_missing_weight_is_named():
    network = plain.VisionNetwork(toy(), [])
    with pytest.raises(NetworkError, match=r"vision_tower\.patch_embed\.proj\.weight"):
        network.run(np.zeros((4, 48), np.float32), 2, 2)


def test_sizes_that_cannot_be_built_are_named():
    for change, names in (
        ({"qkv_size": 36}, "qkv_hidden_size"),
        ({"projector_hidden_size": 8}, "mm_hidden_size"),
    ):
        with pytest.raises(NetworkError, match=names):
            plain.VisionNetwork(toy(**change), [])
