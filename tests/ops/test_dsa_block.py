"""The selection over tiles and chunks equals the selection over everything."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.ops.dsa import block, index_scores, select_block, select_indices


def whole_numbers(batch, queries, cached, high, seed):
    """Inputs whose scores are exact in float32 in any order of summation, with many ties."""
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randint(-high, high + 1, shape, generator=rng).float()

    # 4 heads of width 4 give the scale 1/4.
    return draw(batch, queries, 4, 4), draw(batch, cached, 4), draw(batch, queries, 4)


@given(
    st.integers(1, 90),
    st.integers(0, 300),
    st.integers(1, 40),
    st.sampled_from([1, 3, 40]),
    st.integers(0, 99),
)
def test_same_indices_with_ties(queries, before, top_k, high, seed):
    args = whole_numbers(2, queries, before + queries, high, seed)
    got = select_block(*args, top_k)
    assert torch.equal(got, select_indices(index_scores(*args), top_k))


@pytest.mark.parametrize("high", [1, 1000])
def test_several_tiles(monkeypatch, high):
    monkeypatch.setattr(block, "KEYS", 96)
    monkeypatch.setattr(block, "QUERIES", 7)
    args = whole_numbers(1, 20, 1000, high, 3)
    assert torch.equal(select_block(*args, 5), select_indices(index_scores(*args), 5))


def test_all_scores_equal():
    q, keys, weights = whole_numbers(1, 9, 2000, 3, 1)
    assert torch.equal(select_block(q * 0, keys, weights, 8)[0], torch.arange(8).expand(9, 8))
