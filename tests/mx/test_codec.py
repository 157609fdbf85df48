"""The numpy path: equal to the definition, and the properties a checkpoint relies on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer import mx
from gossamer.mx import FORMATS, RULES, MXError, codec, naive

from . import cases

COMBINATIONS = [pytest.param(f, r, id=f"{f.name}-{r}") for f in FORMATS.values() for r in RULES]

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
blocks = hnp.arrays(np.float32, (2, 32), elements=floats, fill=st.nothing()) | st.builds(
    cases.random_bits, st.integers(0, 2**32 - 1), st.just(4)
)


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def assert_same(a, b):
    assert np.array_equal(bits(a), bits(b))


def assert_equals_naive(x, fmt, rule):
    encoded = mx.encode(x, fmt, rule)
    decoded = encoded.decode()
    for i, row in enumerate(x):
        codes, byte = naive.encode_block([float(v) for v in row], fmt, rule)
        assert (codes, byte) == (encoded.codes[i].tolist(), int(encoded.scales[i, 0])), row.tolist()
        assert_same(naive.decode_block(codes, byte, fmt), decoded[i])


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_equals_naive_on_edges(fmt, rule):
    x = cases.adversarial(fmt, seed=1)
    step = 80 if fmt.bits == 8 else 24  # the naive search is 128 candidates per 8-bit element
    assert_equals_naive(np.concatenate([cases.extremes(), x[::step]]), fmt, rule)


@pytest.mark.slow
@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_equals_naive_on_many_edges(fmt, rule):
    assert_equals_naive(cases.adversarial(fmt, seed=2)[:: 8 if fmt.bits == 8 else 4], fmt, rule)


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_equals_naive_on_random_blocks(fmt, rule):
    @given(blocks)
    def check(x):
        assert_equals_naive(x[:1], fmt, rule)

    check()


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_tables_equal_naive(fmt):
    assert_same(codec.element_table(fmt), [naive.element_value(c, fmt) for c in range(1 << fmt.bits)])
    assert_same(codec.scale_table(), [naive.scale_value(b) for b in range(256)])


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_error_is_half_a_step_unless_saturated(fmt, rule):
    @given(blocks)
    def check(x):
        encoded = mx.encode(x, fmt, rule)
        scale = np.ldexp(1.0, encoded.scales.astype(np.int32) - 127)
        magnitude = np.abs(x.astype(np.float64))
        step = scale * np.exp2(np.maximum(np.floor(np.log2(np.maximum(magnitude / scale, 1e-300))), fmt.emin))
        within = np.abs(encoded.decode() - x.astype(np.float64)) <= step * 2.0**-fmt.mantissa_bits / 2
        saturated = magnitude > fmt.max_normal * scale
        assert (within | saturated).all()
        assert (
            np.abs(encoded.decode())[saturated] == (fmt.max_normal * scale * np.ones_like(x))[saturated]
        ).all()

    check()


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_reencoding_what_was_encoded_keeps_every_value(fmt, rule):
    """FLOOR and EVEN keep the bytes as well; RCEIL may halve a scale once, and then keeps them."""

    @given(blocks)
    def check(x):
        first = mx.encode(x, fmt, rule)
        second = mx.encode(first.decode(), fmt, rule)
        assert_same(first.decode(), second.decode())
        third = mx.encode(second.decode(), fmt, rule)
        for one, two in [(second, third)] + ([(first, second)] if rule != "rceil" else []):
            assert np.array_equal(one.codes, two.codes)
            assert np.array_equal(one.scales, two.scales)

    check()
    for x in (cases.adversarial(fmt, seed=3), cases.gaussian(3, 500)):
        first = mx.encode(x, fmt, rule)
        second = mx.encode(first.decode(), fmt, rule)
        assert_same(first.decode(), second.decode())
        assert rule == "rceil" or np.array_equal(first.scales, second.scales)


def test_rceil_bytes_do_change():
    """amax 3.2 rounds to 3, half of max_normal, which the next encoding calls 6 at half the scale."""
    x = np.zeros((1, 32), np.float32)
    x[0, 0] = 3.2
    first = mx.encode(x, "mxfp4", "rceil")
    second = mx.encode(first.decode(), "mxfp4", "rceil")
    assert (first.codes[0, 0], first.scales[0, 0]) == (5, 127)
    assert (second.codes[0, 0], second.scales[0, 0]) == (7, 126)


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_any_stored_block_survives_decoding_and_encoding(fmt, rule):
    """Codes no encoder of ours wrote: values survive, but for E4M3 (its top code is NaN) under two rules."""
    table = codec.element_table(fmt)
    usable = np.flatnonzero(np.isfinite(table)).astype(np.uint8)
    rng = np.random.default_rng(4)
    codes = usable[rng.integers(0, len(usable), (4000, 32))]
    limit = rng.integers(1, len(usable) // 2, (4000, 1))
    codes = np.where((codes & (fmt.sign_mask - 1)) < limit, codes, codes & fmt.sign_mask).astype(np.uint8)
    scales = rng.integers(0, fmt.max_scale_byte + 1, (4000, 1)).astype(np.uint8)
    values = mx.decode(codes, scales, fmt)
    again = mx.encode(values, fmt, rule).decode()
    lost = (bits(values) != bits(again)).any(axis=1)
    if fmt.name == "mxfp8_e4m3" and rule != "rceil":
        top = np.abs(values).max(axis=1)
        # 1.875 x 2^k becomes 480, which E4M3 lacks, and saturates to 448.
        assert (np.frexp(top[lost])[0] == 0.9375).all()
        assert lost.any()
    else:
        assert not lost.any()


def test_encoded_records_how_it_was_made():
    encoded = mx.encode(np.ones((3, 2, 64), np.float32), "mxfp6_e3m2", "rceil")
    assert (encoded.fmt, encoded.rule) == ("mxfp6_e3m2", "rceil")
    assert encoded.codes.shape == (3, 2, 64)
    assert encoded.scales.shape == (3, 2, 2)
    assert (encoded.decode() == 1).all()


def test_layouts_and_types():
    x = cases.gaussian(5, 64).reshape(16, 4, 32)
    expected = mx.encode(x, "mxfp4", "even")
    strided = np.asfortranarray(x)
    assert np.array_equal(mx.encode(strided, "mxfp4", "even").codes, expected.codes)
    assert np.array_equal(mx.encode(x.astype(np.float64), "mxfp4", "even").codes, expected.codes)
    assert mx.encode(np.ones(32, np.float16), "mxfp4", "even").scales.shape == (1,)
    assert mx.encode(np.empty((0, 32), np.float32), "mxfp4", "even").decode().shape == (0, 32)


def test_input_is_not_changed():
    x = cases.extremes()
    kept = x.copy()
    mx.encode(x, "mxfp4", "even")
    assert_same(x, kept)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused_by_name(bad):
    x = np.ones((4, 96), np.float32)
    x[2, 70] = bad
    with pytest.raises(MXError, match=r"'layers\.3\.w1' holds -?(nan|inf) at \(2, 70\)"):
        mx.encode(x, "mxfp4", "even", name="layers.3.w1")
    encoded = mx.encode(x, "mxfp4", "even", nonfinite="nan")
    assert np.argwhere(encoded.scales == 255).tolist() == [[2, 2]]
    decoded = encoded.decode()
    assert np.isnan(decoded[2, 64:]).all()
    assert (decoded[2, :64] == 1).all()
    with pytest.raises(MXError, match=r"'layers\.3\.w1_scale'.*\(2, 2\)"):
        mx.check_scales(encoded.scales, name="layers.3.w1_scale")
    mx.check_scales(encoded.scales[:2], name="fine")


def test_overflowing_float64_is_refused():
    with pytest.raises(MXError, match="inf"):
        mx.encode(np.full(32, 1e300), "mxfp4", "even")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((2, 31), np.float32), r"\(2, 31\)"),
        (np.float32(1), r"\(\)"),
        (np.ones(32, np.int64), "int64"),
    ],
)
def test_bad_input_is_named(x, message):
    with pytest.raises(MXError, match=message):
        mx.encode(x, "mxfp4", "even")


def test_bad_codes_are_named():
    codes, scales = np.zeros((2, 32), np.uint8), np.zeros((2, 1), np.uint8)
    with pytest.raises(MXError, match="int8"):
        mx.decode(codes.view(np.int8), scales, "mxfp4")
    with pytest.raises(MXError, match=r"\(1, 1\)"):
        mx.decode(codes, scales[:1], "mxfp4")
    with pytest.raises(MXError, match="16"):
        mx.decode(codes + 16, scales, "mxfp4")
    with pytest.raises(MXError, match="nope"):
        mx.encode(np.ones(32, np.float32), "mxfp4", "nope")
    with pytest.raises(MXError, match="mxfp5"):
        mx.encode(np.ones(32, np.float32), "mxfp5", "even")
