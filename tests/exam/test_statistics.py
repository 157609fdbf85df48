import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.exam.statistics import paired_difference, share, wilson


@pytest.mark.parametrize(
    ("count", "total", "low", "high"), [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)]
)
def test_wilson_by_hand(count, total, low, high):
    assert wilson(count, total) == pytest.approx((low, high), abs=1e-4)


@given(st.lists(st.booleans(), max_size=200))
def test_a_share_lies_in_its_interval(flags):
    found = share(flags)
    assert found.low <= found.share <= found.high
    assert found.total == len(flags)


def test_paired_difference():
    first, second = [True] * 30 + [False] * 10, [False] * 20 + [True] * 10 + [False] * 10
    found = paired_difference(first, second, seed=1)
    assert found == paired_difference(first, second, seed=1)
    assert found.value == 0.5
    assert 0.3 < found.low < 0.5 < found.high < 0.7
    assert paired_difference([], [], seed=1).pairs == 0
