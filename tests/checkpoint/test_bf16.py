import numpy as np
import pytest

from gossamer.checkpoint.bf16 import bf16_to_f32, f32_to_bf16

EVERY = np.arange(1 << 16, dtype=np.uint16)


def test_every_pattern_survives():
    values = bf16_to_f32(EVERY)
    back = f32_to_bf16(values)
    nan = np.isnan(values)
    assert np.array_equal(back[~nan], EVERY[~nan])
    assert np.isnan(bf16_to_f32(back[nan])).all()
    assert np.array_equal(back[nan] >> 15, EVERY[nan] >> 15)


def test_rounds_like_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    ties = (rng.integers(0, 1 << 16, 50_000, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, ties, ties + 1, ties - 1]).view(np.float32)
    values = values[~np.isnan(values)]
    expected = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    assert np.array_equal(f32_to_bf16(values), expected)


def test_shapes_and_types():
    assert f32_to_bf16(np.float32(1).reshape(())).shape == ()
    assert bf16_to_f32(EVERY[:6].reshape(2, 3).T).shape == (3, 2)
    with pytest.raises(TypeError, match="float64"):
        f32_to_bf16(np.zeros(2))
    with pytest.raises(TypeError, match="int16"):
        bf16_to_f32(np.zeros(2, np.int16))
