"""The torch part equals the numpy path bit for bit."""

import numpy as np
import pytest

from gossamer import mx
from gossamer.mx import FORMATS, RULES, MXError

from . import cases

torch = pytest.importorskip("torch")
tensor = pytest.importorskip("gossamer.mx.tensor")

COMBINATIONS = [pytest.param(f, r, id=f"{f.name}-{r}") for f in FORMATS.values() for r in RULES]


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_fake_quant_equals_numpy(fmt, rule):
    x = np.concatenate([cases.adversarial(fmt, seed=6), cases.gaussian(6, 500)])
    got = tensor.fake_quant(torch.from_numpy(x), fmt, rule)
    assert np.array_equal(bits(got.numpy()), bits(mx.encode(x, fmt, rule).decode()))


@pytest.mark.parametrize("fmt", FORMATS)
def test_decode_equals_numpy(fmt):
    encoded = mx.encode(cases.adversarial(FORMATS[fmt], seed=7), fmt, "even")
    got = tensor.decode(torch.from_numpy(encoded.codes), torch.from_numpy(encoded.scales), fmt)
    assert np.array_equal(bits(got.numpy()), bits(encoded.decode()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decode4_is_exact_for_every_byte_and_scale(dtype):
    packed = np.arange(256, dtype=np.uint8).reshape(1, 16, 16).repeat(253, axis=0)
    scales = np.broadcast_to(np.arange(253, dtype=np.uint8)[:, None, None], (253, 16, 1)).copy()
    got = tensor.decode4(torch.from_numpy(packed), torch.from_numpy(scales), dtype)
    assert got.dtype == dtype
    assert got.shape == (253, 16, 32)
    assert np.array_equal(bits(got.float().numpy()), bits(mx.decode(mx.unpack4(packed), scales, "mxfp4")))


def test_decode4_in_float16_rounds_from_float32():
    packed = torch.arange(16, dtype=torch.uint8).reshape(1, 16) * 17
    exact = tensor.decode4(packed, torch.tensor([[120]], dtype=torch.uint8))
    assert torch.equal(
        tensor.decode4(packed, torch.tensor([[120]], dtype=torch.uint8), torch.float16).float(), exact
    )
    assert tensor.decode4(packed, torch.tensor([[200]], dtype=torch.uint8), torch.float16).isinf().any()


def test_nan_scale_gives_a_nan_block():
    packed = torch.zeros(2, 32, dtype=torch.uint8)
    scale = torch.tensor([[127, 255], [127, 127]], dtype=torch.uint8)
    got = tensor.decode4(packed, scale)
    assert got[0, 32:].isnan().all()
    assert (got[0, :32] == 0).all()
    assert (got[1] == 0).all()


def test_strided_input():
    packed = torch.randint(0, 256, (8, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(8))
    scale = torch.randint(100, 150, (8, 2), dtype=torch.uint8, generator=torch.Generator().manual_seed(9))
    assert torch.equal(tensor.decode4(packed[::2], scale[::2]), tensor.decode4(packed, scale)[::2])
    x = torch.from_numpy(cases.gaussian(9, 8).reshape(4, 64))
    assert torch.equal(
        tensor.fake_quant(x.t().contiguous().t(), "mxfp4", "even"), tensor.fake_quant(x, "mxfp4", "even")
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradient_passes_straight_through(dtype):
    x = torch.from_numpy(cases.gaussian(10, 4)).to(dtype).requires_grad_()
    weight = torch.linspace(-1, 1, x.numel(), dtype=dtype).reshape(x.shape)
    y = tensor.fake_quant(x, "mxfp4", "even")
    assert y.dtype == dtype
    (y * weight).sum().backward()
    assert torch.equal(x.grad, weight)
    assert not torch.equal(y, x)


def test_bfloat16_is_quantised_from_its_float32_value():
    x = torch.from_numpy(cases.gaussian(11, 16)).bfloat16()
    for fmt in FORMATS:
        expected = tensor.fake_quant(x.float(), fmt, "even")
        assert torch.equal(tensor.fake_quant(x, fmt, "even").float(), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_spoils_its_block_only(bad):
    x = torch.ones(2, 64)
    x[1, 3] = bad
    for fmt in FORMATS:
        y = tensor.fake_quant(x, fmt, "rceil")
        assert y[1, :32].isnan().all()
        assert (y[0] == 1).all()
        assert (y[1, 32:] == 1).all()
        kept = mx.encode(x.numpy(), fmt, "rceil", nonfinite="nan").decode()
        assert np.array_equal(np.isnan(kept), y.isnan().numpy())


def test_bad_arguments_are_named():
    packed, scale = torch.zeros(2, 16, dtype=torch.uint8), torch.zeros(2, 1, dtype=torch.uint8)
    with pytest.raises(MXError, match="int32"):
        tensor.decode4(packed.int(), scale)
    with pytest.raises(MXError, match=r"\(2, 2\)"):
        tensor.decode4(packed, scale.repeat(1, 2))
    with pytest.raises(MXError, match=r"\(2, 16\)"):
        tensor.decode(packed, scale, "mxfp4")
    with pytest.raises(MXError, match="31"):
        tensor.fake_quant(torch.ones(31), "mxfp4", "even")
    with pytest.raises(MXError, match="int64"):
        tensor.fake_quant(torch.ones(32, dtype=torch.int64), "mxfp4", "even")
    with pytest.raises(MXError, match="round"):
        tensor.fake_quant(torch.ones(32), "mxfp4", "round")
