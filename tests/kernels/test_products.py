"""Single products of the inference kernels against numpy, on any shape; their bits against the batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import mx
from gossamer.checkpoint.bf16 import bf16_to_f32, f32_to_bf16
from gossamer.kernels import backend

KINDS = ("half", "full", "packed", "packed int8", "int8", "half bf16", "packed bf16")
ROUNDING = 3e-6
"""Of a float32 sum of up to 400 terms in any order, over the sum of their magnitudes."""
TINY = np.float32(2.0**-126)


def rounded(x):
    """Activations as int8 in blocks of 32: nearest, even at ties; the scale is the largest one over 127."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    peak = np.abs(blocks).max(-1, keepdims=True)
    inverse = np.divide(np.float32(127), peak, out=np.zeros_like(peak), where=peak >= 1e-30)
    codes = np.clip(np.rint(blocks.astype(np.float64) * inverse), -127, 127)
    return (codes * (peak / np.float32(127)).astype(np.float64)).reshape(x.shape)


def rounded_to_bf16(x):
    """Activations as BF16: nearest, even at ties; subnormal ones are zeros of their sign."""
    return bf16_to_f32(f32_to_bf16(np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x))).astype(
        np.float64
    )


def rounded_weights(w):
    """Weights by the same rule, their scales BF16, never below what the largest weight wants."""
    blocks = w.reshape(*w.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    bits = f32_to_bf16(scale)
    bits = np.where(bf16_to_f32(bits) < scale, bits + np.uint16(1), bits).astype(np.uint16)
    scale = bf16_to_f32(bits)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale >= 1e-30)
    return (
        np.clip(np.rint(blocks.astype(np.float64) * inverse), -127, 127) * scale.astype(np.float64)
    ).reshape(w.shape)


class Product:
    """One random matrix and its product, native and by numpy in float64."""

    def __init__(self, kind, rows, cols, seed):
        rng = np.random.default_rng(seed)
        w = rng.standard_normal((rows, cols), np.float32)
        self.kind = kind
        self.left = (w,)
        self.right = lambda x: x.astype(np.float64)
        if kind.startswith("half"):
            self.left = (f32_to_bf16(w),)
            w = bf16_to_f32(self.left[0])
        if kind.startswith("packed"):
            encoded = mx.encode(w, "mxfp4", "even")
            packed = encoded.codes[:, ::2] | encoded.codes[:, 1::2] << 4
            self.left = (np.ascontiguousarray(packed), encoded.scales.reshape(rows, -1))
            w = mx.decode(encoded.codes, encoded.scales, "mxfp4")
        if kind.endswith("int8"):
            self.right = rounded
        if kind.endswith("bf16"):
            self.right = rounded_to_bf16
        self.w = rounded_weights(w) if kind == "int8" else w.astype(np.float64)

    def native(self, module, x, begin, end):
        y = np.full((len(x), len(self.w)), np.nan, np.float32)
        name = self.kind.split()[0]
        bf16 = self.kind.endswith("bf16")
        extra = {"packed": (self.kind == "packed int8", bf16), "half": (bf16,)}.get(name, ())
        getattr(module.infer, f"product_{name}")(*self.left, x, y, begin, end, *extra)
        return y


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("kind", KINDS)
@given(
    rows=st.integers(1, 40),
    blocks=st.integers(1, 12),
    tail=st.integers(0, 31),
    tokens=st.one_of(st.integers(1, 14), st.sampled_from([97, 130])),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_products_equal_numpy(kind, instructions, rows, blocks, tail, tokens, seed, data):
    cols = 32 * blocks + (tail if kind in ("half", "half bf16", "full") else 0)
    product, module = Product(kind, rows, cols, seed), backend.load(instructions)
    begin = data.draw(st.integers(0, rows))
    end = data.draw(st.integers(begin, rows))
    x = np.random.default_rng(seed + 1).standard_normal((tokens, cols), np.float32)
    x *= np.exp2(np.random.default_rng(seed + 2).integers(-20, 20, (tokens, 1))).astype(np.float32)
    got = product.native(module, x, begin, end)
    used = product.right(x)
    want, size = used @ product.w.T, np.abs(used) @ np.abs(product.w.T)
    assert np.isnan(got[:, :begin]).all()
    assert np.isnan(got[:, end:]).all()
    error = np.abs(got[:, begin:end] - want[:, begin:end])
    assert (error <= ROUNDING * size[:, begin:end] + 1e-30).all()
    # The same bits for every row and token on its own.
    for m in {0, tokens // 2, tokens - 1}:
        np.testing.assert_array_equal(product.native(module, x[m : m + 1], begin, end)[0], got[m])
    if begin < end:
        np.testing.assert_array_equal(product.native(module, x, begin, begin + 1)[:, begin], got[:, begin])


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("scale", [127 + 8, 127 + 40, 254])
def test_zeros_at_a_large_scale_add_nothing_in_int8(instructions, scale):
    """However large the scale and however far from zero the inputs: nothing is added to be taken away."""
    product = Product("packed int8", 4, 64, 5)
    codes, scales = (part.copy() for part in product.left)
    codes[:, 16:], scales[:, 1] = 0, scale
    product.left, product.w = (codes, scales), product.w.copy()
    product.w[:, 32:] = 0
    x = 1 + np.random.default_rng(6).random((3, 64), np.float32)
    got, want = product.native(backend.load(instructions), x, 0, 4), rounded(x) @ product.w.T
    np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("kind", ["packed int8", "int8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_lost_in_int8(kind, instructions, bad):
    product = Product(kind, 6, 64, 3)
    x = np.ones((3, 64), np.float32)
    x[1, 40] = bad
    y = product.native(backend.load(instructions), x, 0, 6)
    assert np.isfinite(y[[0, 2]]).all()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("instructions", backend.available())
def test_zeros_and_the_smallest_numbers_stay_zero_in_int8(instructions):
    for kind in ("packed int8", "int8"):
        product = Product(kind, 4, 64, 4)
        x = np.zeros((2, 64), np.float32)
        x[1] = 1e-42
        np.testing.assert_array_equal(product.native(backend.load(instructions), x, 0, 4), np.zeros((2, 4)))


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_codes_at_every_scale_meet_bf16_inputs_exactly(instructions, tokens):
    """Each weight is one product: a code times its scale is exact as BF16 wherever that is normal."""
    scales = np.arange(255, dtype=np.uint8)
    product = Product("packed bf16", 255, 32, 7)
    codes = np.tile(np.arange(16, dtype=np.uint8) * 16 + np.arange(16, dtype=np.uint8)[::-1], (255, 1))
    product.left = (codes, scales[:, None])
    unpacked = np.stack([codes & 15, codes >> 4], -1).reshape(255, 32)
    with np.errstate(over="ignore"):
        want = mx.decode(unpacked, scales[:, None], "mxfp4")
    normal = (np.abs(want) >= TINY) & np.isfinite(want)
    for column in range(32):
        x = np.zeros((tokens, 32), np.float32)
        x[:, column] = 1
        got = product.native(backend.load(instructions), x, 0, 255)
        # A row that overflows turns the zeros of other columns into NaN.
        use = normal[:, column] & np.isfinite(want).all(1)
        np.testing.assert_array_equal(got[:, use], np.tile(want[use, column], (tokens, 1)))


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("kind", ["half bf16", "packed bf16"])
def test_awkward_inputs_round_to_bf16_as_defined(kind, instructions):
    """Ties to even, subnormals to zero, infinities and NaN as they are, for their own row."""
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x00800000, 0x007FFFFF, 0x80000001, 0x7F7FFFFF]
    x = np.zeros((len(bits) + 2, 32), np.float32)
    x[: len(bits), 3] = np.array(bits, np.uint32).view(np.float32)
    x[len(bits) :, 3] = np.nan, np.inf
    product = Product(kind, 1, 32, 8)
    ones = np.full((1, 32), 0x3F80, np.uint16) if kind == "half bf16" else np.full((1, 16), 0x22, np.uint8)
    product.left = (ones, *(np.full_like(scales, 127) for scales in product.left[1:]))
    got = product.native(backend.load(instructions), x, 0, 1)[:, 0]
    want = [0x3F800000, 0x3F820000, 0x3F810000, 0x00800000, 0, 0, 0x7F800000]
    np.testing.assert_array_equal(np.abs(got[: len(bits)]), np.array(want, np.uint32).view(np.float32))
    assert np.isnan(got[-2])
    assert not np.isfinite(got[-1])


@pytest.mark.parametrize("instructions", backend.available())
@given(seed=st.integers(0, 9999), exponent=st.integers(-140, 127))
def test_mxfp8_rounding_is_the_format_s(instructions, seed, exponent):
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore", under="ignore"):
        x = rng.standard_normal((4, 64)) * np.exp2(rng.integers(-12, 2, (4, 64)))
        x = np.clip(np.ldexp(x, exponent), -3e38, 3e38).astype(np.float32)
    encoded = mx.encode(x, "mxfp8_e4m3", "floor")
    backend.load(instructions).infer.round_mxfp8(x)
    np.testing.assert_array_equal(x, mx.decode(encoded.codes, encoded.scales, "mxfp8_e4m3"))


@pytest.mark.parametrize("instructions", backend.available())
def test_products_that_do_not_fit_are_refused(instructions):
    product, module = Product("half", 4, 40, 1), backend.load(instructions)
    with pytest.raises(ValueError, match=r"rows 2 to 9 of 4"):
        product.native(module, np.ones((1, 40), np.float32), 2, 9)
    with pytest.raises(ValueError, match=r"w is no matrix"):
        module.infer.product_half(
            np.zeros(32, np.uint16), np.ones((1, 32), np.float32), np.zeros((1, 1), np.float32), 0, 0
        )
    with pytest.raises(ValueError, match=r"x is no \[M, 40\]"):
        product.native(module, np.ones((1, 32), np.float32), 0, 4)
