"""Blocks are counted right, and whoever counts wrong is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.engine.api import EngineError
from gossamer.engine.block_pool import BlockPool, IntegrityError


def test_taken_shared_and_released():
    pool = BlockPool(3)
    first, second = pool.take(), pool.take()
    assert {first, second} < {0, 1, 2}
    assert (pool.size, pool.num_free) == (3, 1)
    assert pool.share(first) == first
    assert pool.num_holders(first) == 2
    assert not pool.release(first)
    assert pool.release(first)
    assert (pool.num_holders(first), pool.num_free) == (0, 2)
    pool.check_integrity({second: 1})


def test_misuse_is_named():
    pool = BlockPool(1, name="slot")
    with pytest.raises(IntegrityError, match="slot 0 is free"):
        pool.share(0)
    with pytest.raises(IntegrityError, match="slot 0 is released twice"):
        pool.release(0)
    pool.take()
    with pytest.raises(IntegrityError, match="all 1 slots are held"):
        pool.take()
    with pytest.raises(EngineError, match="0 blocks"):
        BlockPool(0)


@pytest.mark.parametrize("expected", [{}, {0: 2, 1: 1}, {0: 1}, {0: 1, 1: 1, 2: 1}])
def test_holders_that_differ_are_named(expected):
    pool = BlockPool(3)
    assert [pool.take(), pool.take()] == [0, 1]
    with pytest.raises(IntegrityError, match="holders"):
        pool.check_integrity(expected)
    pool.check_integrity({0: 1, 1: 1})


def test_a_damaged_free_list_is_noticed():
    pool = BlockPool(2)
    pool._free.append(1)
    with pytest.raises(IntegrityError, match="twice"):
        pool.check_integrity({})
    pool = BlockPool(2)
    pool._free.pop()
    with pytest.raises(IntegrityError, match="free list"):
        pool.check_integrity({})


@given(
    st.lists(st.sampled_from(["take", "share", "release"]), max_size=40), st.randoms(use_true_random=False)
)
def test_counts_follow_a_plain_model(actions, random):
    pool, held = BlockPool(4), []
    for action in actions:
        if action == "take" and pool.num_free:
            block = pool.take()
            assert block not in held
            held.append(block)
        elif held and action == "share":
            held.append(pool.share(random.choice(held)))
        elif held and action == "release":
            block = held.pop(random.randrange(len(held)))
            assert pool.release(block) == (block not in held)
        pool.check_integrity({block: held.count(block) for block in held})
        assert pool.num_free == 4 - len(set(held))
