"""The matrix product of the kernels against NumPy in float64, on every build that runs here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gossamer.kernels import backend

SIZES = st.one_of(st.integers(1, 40), st.sampled_from([48, 64, 96, 100, 128, 257, 330, 700]))


def matrix(rng: np.random.Generator, rows: int, columns: int, gap: int) -> NDArray[np.float32]:
    """A [rows, columns] view whose rows are `gap` floats apart."""
    return rng.standard_normal((rows, columns + gap), dtype=np.float32)[:, :columns]


@pytest.mark.parametrize("name", backend.available())
@given(
    m=SIZES,
    n=SIZES,
    k=SIZES,
    gaps=st.tuples(*[st.sampled_from([0, 1, 3, 192])] * 3),
    trans_a=st.booleans(),
    trans_b=st.booleans(),
    accumulate=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_product(
    name: str,
    m: int,
    n: int,
    k: int,
    gaps: tuple[int, int, int],
    trans_a: bool,
    trans_b: bool,
    accumulate: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    a = matrix(rng, *((k, m) if trans_a else (m, k)), gaps[0])
    b = matrix(rng, *((n, k) if trans_b else (k, n)), gaps[1])
    room = rng.standard_normal((m, n + gaps[2]), dtype=np.float32)
    before, c = room.copy(), room[:, :n]
    left, right = (a.T if trans_a else a).astype(np.float64), (b.T if trans_b else b)
    exact, terms = left @ right, np.abs(left) @ np.abs(right)
    if accumulate:
        exact, terms = exact + c, terms + np.abs(c)
    backend.load(name).train.sgemm(a, b, c, trans_a, trans_b, accumulate)
    # Rounding grows with the terms of a sum, not with what is left of them.
    assert (np.abs(c - exact) <= 6e-8 * (k**0.5 + 3) * terms).all()
    np.testing.assert_array_equal(room[:, n:], before[:, n:])


@pytest.mark.parametrize("shape", [(300, 1100, 40), (700, 40, 1000), (40, 1040, 330)])
def test_more_than_one_block(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(3)
    a, b = matrix(rng, m, k, 0), matrix(rng, n, k, 0)
    c = np.empty((m, n), np.float32)
    backend.load().train.sgemm(a, b, c, trans_b=True)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.T, rtol=0, atol=1e-4)


def test_empty_depth() -> None:
    c = np.ones((2, 3), np.float32)
    product = backend.load().train.sgemm
    product(np.empty((2, 0), np.float32), np.empty((0, 3), np.float32), c, accumulate=True)
    assert (c == 1).all()
    product(np.empty((2, 0), np.float32), np.empty((0, 3), np.float32), c)
    assert (c == 0).all()


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        (np.ones((2, 3)), np.ones((4, 5)), np.ones((2, 5)), r"a \[2, 3\], b \[4, 5\]"),
        (np.ones((2, 3)), np.ones((3, 5)), np.ones((2, 4)), "do not fit"),
        (np.ones((3, 2)).T, np.ones((3, 5)), np.ones((2, 5)), "rows of a have gaps"),
    ],
)
def test_refusals(a: NDArray, b: NDArray, c: NDArray, message: str) -> None:
    a, b, c = (x.astype(np.float32, order="K") for x in (a, b, c))
    with pytest.raises(ValueError, match=message):
        backend.load().train.sgemm(a, b, c)
