"""Cached rows: native and numpy forms agree bit for bit, and E4M3 is the definition's."""

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config import presets
from gossamer.config.count import (
    indexer_bytes_per_token,
    latent_bytes_per_token,
    state_bytes_per_sequence,
)
from gossamer.kernels import backend
from gossamer.kernels.cache_rows import CacheType, RowLayout, block_bytes, slot_bytes, to_e4m3
from gossamer.mx import naive

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
LAYOUTS = [(64, 64, True), (576, 512, False), (40, 33, False), (7, 7, True), (130, 129, True), (5, 0, False)]


@given(st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=40))
def test_codes_are_the_nearest(values):
    got = to_e4m3(np.array(values, np.float32)).tolist()
    want = [naive.round_element(math.copysign(min(abs(v), 448.0), v), "mxfp8_e4m3") for v in values]
    assert got == want


@pytest.mark.parametrize("exponent", range(-12, 9))
def test_ties_go_to_even(exponent):
    values = np.float32(2.0**exponent) * np.arange(32, dtype=np.float32) / np.float32(16)
    want = [naive.round_element(min(float(v), 448.0), "mxfp8_e4m3") for v in values]
    assert to_e4m3(values).tolist() == want


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("dtype", get_args(CacheType))
@given(data=st.data())
def test_the_native_row_is_the_numpy_row(instructions, dtype, data):
    width, coded, powers = data.draw(st.sampled_from(LAYOUTS))
    layout = RowLayout(dtype, width, coded, powers)
    scale = np.float32(10.0 ** data.draw(st.integers(-38, 37)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    row = (rng.normal(size=width).astype(np.float32) * scale).astype(np.float32)
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, width - 1), floats), max_size=3)):
        row[at] = value
    infer, number = backend.load(instructions).infer, get_args(CacheType).index(dtype)
    assert infer.row_bytes(number, width, coded) == layout.num_bytes
    kept = np.empty(layout.num_bytes, np.uint8)
    infer.keep_row(row, kept, number, coded, powers)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kept, layout.keep(row[None])[0])
        back, want = np.empty(width, np.float32), layout.read(kept[None])[0]
    infer.read_row(kept, back, number, coded)
    np.testing.assert_array_equal(back, want)


@pytest.mark.parametrize(("width", "coded", "powers"), [(576, 512, False), (128, 128, True)])
def test_fp8_keeps_three_bits_of_mantissa(width, coded, powers):
    row = np.random.default_rng(1).normal(size=(50, width)).astype(np.float32)
    layout = RowLayout("fp8", width, coded, powers)
    error = np.abs(layout.read(layout.keep(row)) - row)
    step = np.abs(row).max(1, keepdims=True) / 448 * (2 if powers else 1)
    # Half a step of the last bit of the mantissa, or half the smallest step of all.
    assert np.all(error <= np.maximum(np.abs(row) / 16, step * 2.0**-10) * 1.0001)
    assert np.all(error[:, coded:] <= np.abs(row[:, coded:]) / 256)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_shows_in_its_group_and_nowhere_else(bad):
    row = np.ones((1, 300), np.float32)
    row[0, 130] = bad
    layout = RowLayout("fp8", 300, 300)
    back = layout.read(layout.keep(row))[0]
    assert np.isnan(back[128:256]).all()
    np.testing.assert_array_equal(np.delete(back, range(128, 256)), 1.0)


@pytest.mark.parametrize("preset", ["k3.1-pro", "nano"])
def test_sizes_are_the_exact_counts(preset):
    config = presets.load(preset)
    latent, keys = latent_bytes_per_token(config), indexer_bytes_per_token(config)
    assert block_bytes(config, "bf16", 64) == 64 * (latent["bf16"] + keys["bf16"])
    assert block_bytes(config, "fp8", 64) == 64 * (latent["fp8_ds_mla"] + keys["fp8"])
    assert slot_bytes(config, "bf16") == state_bytes_per_sequence(config)["bf16"]
    assert slot_bytes(config, "f32") == 2 * slot_bytes(config, "bf16")
