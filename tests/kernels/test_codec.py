"""The native MX codec: bit for bit the definition, in every build that runs here and without one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer import mx
from gossamer.kernels import backend, codec
from gossamer.kernels.backend import BackendError
from gossamer.mx import BLOCK, FORMATS, RULES, MXError, naive
from gossamer.mx.formats import SCALE_NAN
from mx import cases

BUILDS = backend.available()
COMBINATIONS = [pytest.param(f, r, id=f"{f.name}-{r}") for f in FORMATS.values() for r in RULES]
FP4 = FORMATS["mxfp4"]
# Blocks are encoded in groups of 8 and chunks of 32, what is left one at a time.
NUM_BLOCKS = [0, 1, 2, 7, 8, 9, 31, 32, 33, 71]

pytestmark = pytest.mark.skipif(not BUILDS, reason="the native kernels are not built")

floats = st.floats(width=32)
blocks = hnp.arrays(np.float32, (9, BLOCK), elements=floats, fill=floats) | st.builds(
    cases.random_bits, st.integers(0, 2**32 - 1), st.integers(1, 40)
)


def bits(values):
    return np.asarray(values, np.float32).view(np.uint32)


def assert_encodes_the_same(x, fmt, rule):
    """In every build, loose and packed."""
    want = mx.encode(x, fmt, rule, nonfinite="nan")
    for build in BUILDS:
        got = codec.encode(x, fmt, rule, nonfinite="nan", instructions=build)
        wrong = (got.codes != want.codes).any(-1) | (got.scales != want.scales).any(-1)
        assert not wrong.any(), (build, x[wrong][0].tolist())
        assert (got.codes.dtype, got.fmt, got.rule) == (np.uint8, fmt.name, rule)
        if fmt is FP4:
            packed = codec.encode4(x, rule, nonfinite="nan", instructions=build)
            np.testing.assert_array_equal(packed.packed, mx.pack4(want.codes))
            np.testing.assert_array_equal(packed.scales, want.scales)
            assert packed.rule == rule


def assert_decodes_the_same(codes, scales, fmt):
    want = bits(mx.decode(codes, scales, fmt))
    for build in BUILDS:
        np.testing.assert_array_equal(bits(codec.decode(codes, scales, fmt, instructions=build)), want, build)
        if fmt is FP4:
            got = codec.decode4(mx.pack4(codes), scales, instructions=build)
            np.testing.assert_array_equal(bits(got), want, build)


def hostile(fmt, seed):
    """Every edge of the formats and rules, in an order in which odd blocks stand beside plain ones."""
    x = np.concatenate(
        [cases.adversarial(fmt, seed), np.repeat(cases.extremes(), 3, 0), cases.gaussian(seed, 300)]
    )
    x = np.random.default_rng(seed).permutation(x)
    x[::37, 5] = np.inf
    x[1::41, 31] = np.nan
    x[2::43, 0] = -np.inf
    return x


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_encoding_equals_the_numpy_codec_on_edges(fmt, rule, seeded):
    assert_encodes_the_same(hostile(fmt, seeded), fmt, rule)


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_encoding_equals_the_numpy_codec_on_random_blocks(fmt, rule):
    @given(blocks)
    def check(x):
        assert_encodes_the_same(x, fmt, rule)

    check()


@pytest.mark.parametrize(("fmt", "rule"), COMBINATIONS)
def test_encoding_equals_the_definition(fmt, rule, seeded):
    """The numpy codec is held to it elsewhere; this is the direct way, on fewer blocks."""
    draw = np.random.default_rng(seeded)
    x = np.concatenate([cases.extremes(), draw.permutation(cases.adversarial(fmt, seeded))[:12]])
    for build in BUILDS:
        found = codec.encode(x, fmt, rule, instructions=build)
        values = codec.decode(found.codes, found.scales, fmt, instructions=build)
        for i, row in enumerate(x):
            codes, byte = naive.encode_block([float(v) for v in row], fmt, rule)
            assert (codes, byte) == (found.codes[i].tolist(), int(found.scales[i, 0])), (build, row.tolist())
            np.testing.assert_array_equal(bits(values[i]), bits(naive.decode_block(codes, byte, fmt)))


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_every_exponent_of_the_scale_is_encoded_the_same(fmt):
    """Subnormal values, zero scales and saturation meet at the ends of float32's range."""
    x = cases.gaussian(3, 1)[0].astype(np.float64)
    x /= np.abs(x).max()
    with np.errstate(over="ignore"):
        rows = np.stack([np.ldexp(x, e) for e in range(-160, 128)]).astype(np.float32)
    for rule in RULES:
        assert_encodes_the_same(rows, fmt, rule)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_every_code_under_every_scale_is_decoded_the_same(fmt):
    codes = np.resize(np.arange(1 << fmt.bits, dtype=np.uint8), max(1 << fmt.bits, BLOCK))
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], codes.size // BLOCK, 1)
    assert_decodes_the_same(np.broadcast_to(codes, (256, codes.size)), scales, fmt)


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_random_codes_are_decoded_the_same(fmt):
    @given(st.integers(0, 2**32 - 1), st.integers(0, 40))
    def check(seed, count):
        draw = np.random.default_rng(seed)
        codes = draw.integers(0, 1 << fmt.bits, (count, 2 * BLOCK), dtype=np.uint8)
        assert_decodes_the_same(codes, draw.integers(0, 256, (count, 2), dtype=np.uint8), fmt)

    check()


@pytest.mark.parametrize("count", NUM_BLOCKS)
def test_nothing_is_written_beside_the_result(count):
    """Memory before and after the outputs keeps its bytes, at every length."""
    x = cases.gaussian(7, count)
    for build in BUILDS:
        native = backend.load(build).mx
        for packed in (False, True):
            size = count * (BLOCK // 2 if packed else BLOCK)
            codes, scales = np.full(size + 64, 99, np.uint8), np.full(count + 64, 99, np.uint8)
            native.encode(x, codes[32 : 32 + size], scales[32 : 32 + count], (4, 1, 1, 2, 7), 1 << 21, packed)
            want = mx.encode(x, "mxfp4", "even")
            want_codes = mx.pack4(want.codes) if packed else want.codes
            np.testing.assert_array_equal(codes[32 : 32 + size], want_codes.reshape(-1))
            np.testing.assert_array_equal(scales[32 : 32 + count], want.scales.reshape(-1))
            for array, end in ((codes, 32 + size), (scales, 32 + count)):
                assert (array[:32] == 99).all()
                assert (array[end:] == 99).all()
            y = np.full((count + 2) * BLOCK, 99, np.float32)
            inner = y[BLOCK:-BLOCK].reshape(count, BLOCK)
            if packed:
                codec.decode4(want_codes, want.scales, out=inner, instructions=build)
            else:
                codec.decode(want.codes, want.scales, "mxfp4", out=inner, instructions=build)
            np.testing.assert_array_equal(inner, want.decode())
            assert (y[:BLOCK] == 99).all()
            assert (y[-BLOCK:] == 99).all()


def test_shapes_layouts_and_types():
    x = cases.gaussian(5, 64).reshape(16, 4, 32)
    want = mx.encode(x, "mxfp8_e4m3", "even")
    for given_x in (np.asfortranarray(x), x.astype(np.float64)):
        got = codec.encode(given_x, "mxfp8_e4m3", "even")
        np.testing.assert_array_equal(got.codes, want.codes)
        assert (got.codes.shape, got.scales.shape) == ((16, 4, 32), (16, 4, 1))
    turned = codec.decode(np.asfortranarray(want.codes), np.asfortranarray(want.scales), "mxfp8_e4m3")
    np.testing.assert_array_equal(turned, want.decode())
    packed = codec.encode4(x.reshape(2, 1024), "even")
    assert (packed.packed.shape, packed.scales.shape) == ((2, 512), (2, 32))
    assert codec.decode4(packed.packed, packed.scales).shape == (2, 1024)


def test_what_cannot_be_written_is_read():
    x = cases.gaussian(5, 3)
    x.flags.writeable = False
    packed = codec.encode4(x, "even")
    packed.packed.flags.writeable = packed.scales.flags.writeable = False
    assert codec.decode4(packed.packed, packed.scales).shape == (3, 32)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("build", [*BUILDS, None])
def test_weights_that_are_not_finite_are_refused_by_name(bad, build):
    x = np.ones((4, 96), np.float32)
    x[2, 70] = bad
    message = r"'layers\.3\.w1' holds -?(nan|inf) at \(2, 70\) and 1 block"
    with pytest.raises(MXError, match=message):
        codec.encode(x, "mxfp8_e4m3", "even", name="layers.3.w1", instructions=build)
    with pytest.raises(MXError, match=message):
        codec.encode4(x, "even", name="layers.3.w1", instructions=build)
    packed = codec.encode4(x, "even", nonfinite="nan", instructions=build)
    assert np.argwhere(packed.scales == SCALE_NAN).tolist() == [[2, 2]]
    values = codec.decode4(packed.packed, packed.scales, instructions=build)
    assert np.isnan(values[2, 64:]).all()
    assert (values[2, :64] == 1).all()


@pytest.fixture(params=[True, False], ids=["native", "numpy"])
def with_and_without_kernels(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(backend, "available", lambda: [])


@pytest.mark.usefixtures("with_and_without_kernels")
def test_bad_arguments_are_named():
    codes, scales = np.zeros((2, 32), np.uint8), np.zeros((2, 1), np.uint8)
    for call, message in [
        (lambda: codec.encode(np.ones((2, 31), np.float32), "mxfp4", "even"), r"\(2, 31\)"),
        (lambda: codec.encode4(np.float32(1), "even"), r"\(\)"),
        (lambda: codec.encode4(np.ones(32, np.int64), "even", name="w"), r"tensor 'w' has dtype int64"),
        (lambda: codec.encode(np.ones(32), "mxfp5", "even"), "mxfp5"),
        (lambda: codec.encode4(np.ones(32), "nope"), "nope"),
        (lambda: codec.decode(codes.view(np.int8), scales, "mxfp4"), "int8"),
        (lambda: codec.decode(codes, scales[:1], "mxfp4"), r"\(1, 1\)"),
        (lambda: codec.decode(codes + 16, scales, "mxfp4"), "code 16 has more than"),
        (lambda: codec.decode(codes + 70, scales, "mxfp6_e2m3"), "code 70 has more than"),
        (lambda: codec.decode4(codes, scales), r"\(2, 32\) need scales .* got \(2, 1\)"),
        (lambda: codec.decode4(codes[:, :15], scales), r"\(2, 15\)"),
        (lambda: codec.decode4(codes[:, :16].astype(np.int32), scales), "int32"),
        (lambda: codec.decode4(codes[:, :16], scales, out=np.empty((2, 31), np.float32)), r"\(2, 31\)"),
        (lambda: codec.decode4(codes[:, :16], scales, out=np.empty((2, 32))), "float64"),
        (lambda: codec.decode(codes, scales, "mxfp4", out=np.empty((32, 2), np.float32).T), "not contiguous"),
    ]:
        with pytest.raises(MXError, match=message):
            call()


def test_without_kernels_the_numpy_codec_answers(monkeypatch):
    x = hostile(FP4, 4)
    want, packed = (
        codec.encode(x, "mxfp4", "even", nonfinite="nan"),
        codec.encode4(x, "even", nonfinite="nan"),
    )
    values = codec.decode4(packed.packed, packed.scales)
    monkeypatch.setattr(backend, "available", lambda: [])
    np.testing.assert_array_equal(codec.encode(x, "mxfp4", "even", nonfinite="nan").codes, want.codes)
    np.testing.assert_array_equal(codec.encode4(x, "even", nonfinite="nan").packed, packed.packed)
    np.testing.assert_array_equal(codec.decode4(packed.packed, packed.scales), values)
    np.testing.assert_array_equal(codec.decode(want.codes, want.scales, "mxfp4"), values)


def test_an_absent_backend_is_an_error():
    with pytest.raises(BackendError, match="sse"):
        codec.encode4(np.ones(32), "even", instructions="sse")


def test_the_bindings_refuse_arrays_that_do_not_fit():
    native = backend.load().mx
    x, codes, scales = np.zeros(64, np.float32), np.zeros(64, np.uint8), np.zeros(2, np.uint8)
    fp4 = (4, 1, 1, 2, 7)
    for call, message in [
        (lambda: native.encode(x[:40], codes, scales, fp4, 0, False), "40 values"),
        (lambda: native.encode(x, codes[:63], scales, fp4, 0, False), "codes have 63 entries where 64"),
        (lambda: native.encode(x, codes, scales[:1], fp4, 0, False), "scales have 1"),
        (
            lambda: native.encode(x, codes[:32], scales, (8, 3, 7, 8, 126), 0, True),
            "8-bit codes are not packed",
        ),
        (lambda: native.encode(x, codes, scales, (12, 3, 7, 8, 126), 0, False), "in 12"),
        (lambda: native.decode(codes, scales, x, fp4, np.zeros(8, np.float32)), "table have 8"),
        (lambda: native.decode_packed(codes, scales, x, np.zeros(16, np.float32)), "packed have 64"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
