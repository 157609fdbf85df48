"""The definition itself, against the tables and sentences of the OCP text."""

import math

import pytest

from gossamer.mx import FORMATS, MXError, naive

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_e2m1_is_the_published_table():
    assert [naive.element_value(c, "mxfp4") for c in range(8)] == E2M1
    assert [naive.element_value(c, "mxfp4") for c in range(8, 16)] == [-v for v in E2M1]
    assert math.copysign(1, naive.element_value(8, "mxfp4")) == -1


@pytest.mark.parametrize(
    ("fmt", "largest", "smallest_normal", "smallest"),
    [
        ("mxfp4", 6, 1, 0.5),
        ("mxfp6_e2m3", 7.5, 1, 0.125),
        ("mxfp6_e3m2", 28, 0.25, 0.0625),
        ("mxfp8_e4m3", 448, 2**-6, 2**-9),
        ("mxfp8_e5m2", 57344, 2**-14, 2**-16),
    ],
)
def test_ranges(fmt, largest, smallest_normal, smallest):
    f = FORMATS[fmt]
    finite = [v for v in (naive.element_value(c, f) for c in range(f.sign_mask)) if math.isfinite(v)]
    assert max(finite) == largest == f.max_normal
    assert finite[1] == smallest
    assert finite[1 << f.mantissa_bits] == smallest_normal == 2.0**f.emin
    assert finite == sorted(finite)
    assert 2.0**f.emax <= largest < 2.0 ** (f.emax + 1)


def test_special_codes():
    assert math.isnan(naive.element_value(0x7F, "mxfp8_e4m3"))
    assert math.isnan(naive.element_value(0xFF, "mxfp8_e4m3"))
    assert naive.element_value(0x7C, "mxfp8_e5m2") == math.inf
    assert naive.element_value(0xFC, "mxfp8_e5m2") == -math.inf
    assert all(math.isnan(naive.element_value(c, "mxfp8_e5m2")) for c in (0x7D, 0x7E, 0x7F, 0xFD))


def test_scale_values():
    assert naive.scale_value(127) == 1
    assert naive.scale_value(0) == 2.0**-127
    assert naive.scale_value(254) == 2.0**127
    assert math.isnan(naive.scale_value(255))


@pytest.mark.parametrize(
    ("value", "code"),
    [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5, 6), (5.01, 7), (100, 7), (-0.1, 8)],
)
def test_ties_go_to_the_even_code_and_the_rest_saturates(value, code):
    assert naive.round_element(value, "mxfp4") == code


@pytest.mark.parametrize(
    ("amax", "floor", "even", "rceil"),
    [(4.0, 0, 0, 0), (6.0, 0, 0, 0), (6.01, 0, 0, 1), (6.99, 0, 0, 1), (7.0, 0, 1, 1), (7.99, 0, 1, 1)],
)
def test_scale_rules_turn_where_they_should(amax, floor, even, rceil):
    """MXFP4 on [4, 8): FLOOR never goes up, EVEN from 7 on, RCEIL above 6."""
    assert naive.scale_byte(amax, "mxfp4", "floor") == 127 + floor
    assert naive.scale_byte(amax, "mxfp4", "even") == 127 + even
    assert naive.scale_byte(amax, "mxfp4", "rceil") == 127 + rceil


def test_scale_bytes_stay_in_range():
    for f in FORMATS.values():
        for rule in ("floor", "even", "rceil"):
            assert naive.scale_byte(0.0, f, rule) == 0
            assert naive.scale_byte(2.0**-149, f, rule) == 0
            largest = naive.scale_byte(2.0**128 - 2.0**104, f, rule)
            assert largest == f.max_scale_byte
            assert f.max_normal * naive.scale_value(largest) < 2.0**128


def test_bad_arguments_are_named():
    with pytest.raises(MXError, match="mxfp5"):
        naive.element_value(0, "mxfp5")
    with pytest.raises(MXError, match="ceil"):
        naive.scale_byte(1.0, "mxfp4", "ceil")
    with pytest.raises(MXError, match="16"):
        naive.element_value(16, "mxfp4")
    with pytest.raises(MXError, match="256"):
        naive.scale_value(256)
    with pytest.raises(MXError, match="31"):
        naive.encode_block([0.0] * 31, "mxfp4", "even")
    with pytest.raises(MXError, match="NaN"):
        naive.encode_block([math.nan] + [0.0] * 31, "mxfp4", "even")
