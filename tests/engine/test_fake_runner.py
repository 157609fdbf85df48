"""The fake is worth something only if it notices mistakes."""

import numpy as np
import pytest

from gossamer.engine.runner import Segment

from .fake_runner import FakeRunner, Misuse


def segment(tokens, *, start=0, slot=0, blocks=(0, 1), want_logits=True):
    return Segment(token_ids=tokens, start=start, slot=slot, blocks=list(blocks), want_logits=want_logits)


@pytest.fixture
def runner():
    runner = FakeRunner()
    runner.clear_slot(0)
    runner.clear_slot(1)
    return runner


def test_rows_do_not_depend_on_splitting_batch_slot_or_blocks(runner):
    whole = runner.run([segment([1, 2, 3, 4, 5, 6])])
    runner.clear_slot(0)
    runner.clear_slot(1)
    first = runner.run(
        [segment([1, 2], slot=1, blocks=[7], want_logits=False), segment([9], slot=0, blocks=[5])]
    )
    assert first.shape == (1, runner.vocab_size)
    split = runner.run([segment([3, 4, 5, 6], start=2, slot=1, blocks=[7, 3])])
    assert np.array_equal(whole, split)
    runner.clear_slot(0)
    assert not np.array_equal(whole, runner.run([segment([1, 2, 3, 4, 5, 7])]))


def test_a_saved_slot_and_copied_blocks_go_on_as_the_original(runner):
    runner.run([segment([1, 2, 3, 4, 5])])
    saved, blocks = runner.save_slot(0), [runner.read_block(b) for b in (0, 1)]
    expected = runner.run([segment([6], start=5)])
    runner.restore_slot(2, saved)
    for target, data in zip((8, 9), blocks, strict=True):
        runner.write_block(target, data)
    assert np.array_equal(expected, runner.run([segment([6], start=5, slot=2, blocks=[8, 9])]))


@pytest.mark.parametrize(
    "wrong",
    [
        [segment([6], start=4)],
        [segment([6], start=5, blocks=[0])],
        [segment([6], start=5, blocks=[0, 2])],
        [segment([6], start=5, blocks=[1, 0])],
        [segment([6], start=5, blocks=[0, 0])],
        [segment([6], start=5, slot=1)],
        [segment([6], start=0, slot=3)],
        [segment([], start=5)],
        [],
        [segment([6], start=5), segment([6], start=5)],
        [segment([6], start=5), segment([7], slot=1, blocks=[1])],
        [segment([6], start=5), segment([7], slot=1, blocks=[0])],
    ],
)
def test_misuse_is_noticed(runner, wrong):
    runner.run([segment([1, 2, 3, 4, 5])])
    with pytest.raises(Misuse):
        runner.run(wrong)


def test_a_slot_of_another_sequence_is_noticed(runner):
    runner.run([segment([1, 2, 3, 4, 5]), segment([1, 2, 3, 4, 6], slot=1, blocks=[4, 5])])
    with pytest.raises(Misuse, match="different sequences"):
        runner.run([segment([7], start=5, slot=1, blocks=[0, 1])])
