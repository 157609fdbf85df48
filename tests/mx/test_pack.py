import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.mx import MXError, pack4, unpack4


def test_even_column_is_the_low_nibble():
    assert pack4(np.array([[0x1, 0xA, 0xF, 0x0]], np.uint8)).tolist() == [[0xA1, 0x0F]]


@given(hnp.arrays(np.uint8, st.tuples(st.integers(0, 5), st.integers(0, 9))))
def test_every_byte_survives(packed):
    codes = unpack4(packed)
    assert codes.shape == (packed.shape[0], 2 * packed.shape[1])
    assert np.array_equal(pack4(codes), packed)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros(3, np.uint8), r"\(3,\)"),
        (np.full(2, 16, np.uint8), "16"),
        (np.zeros(2, np.int32), "int32"),
    ],
)
def test_what_cannot_be_packed_is_named(codes, message):
    with pytest.raises(MXError, match=message):
        pack4(codes)


def test_what_cannot_be_unpacked_is_named():
    with pytest.raises(MXError, match="int8"):
        unpack4(np.zeros(2, np.int8))
