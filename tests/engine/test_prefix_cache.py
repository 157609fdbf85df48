"""The tree of prefixes by itself: what is found, what goes first, what comes back from disk."""

import numpy as np
import pytest

from gossamer.engine.block_hash import BlockHasher, root_hash
from gossamer.engine.block_pool import BlockPool, IntegrityError
from gossamer.engine.metrics import Metrics
from gossamer.engine.prefix_cache import PrefixCache
from gossamer.engine.settings import SpillSettings
from gossamer.engine.spill import SpillStore

BLOCK, STATE = 8, 16


class Blocks:
    """Block contents, each filled with one number."""

    def __init__(self, size):
        self.held = np.zeros((size, BLOCK), np.uint8)

    def read_block(self, block):
        return self.held[block].copy()

    def write_block(self, block, data):
        self.held[block] = data


class Setup:
    def __init__(self, size=12, max_bytes=10_000, folder=None, spill_bytes=100_000):
        self.pool, self.blocks = BlockPool(size), Blocks(size)
        spill = None
        if folder is not None:
            spill = SpillStore(SpillSettings(directory=folder, max_bytes=spill_bytes, fingerprint="x"))
        self.spill = spill
        self.metrics = Metrics()
        self.cache = PrefixCache(
            self.pool,
            block_bytes=BLOCK,
            snapshot_bytes=STATE,
            max_bytes=max_bytes,
            metrics=self.metrics,
            spill=spill,
            block_io=None if spill is None else self.blocks,
        )

    def keep(self, text, *, hold=False):
        """Compute a text, one letter a block, and keep the state after it; returns the blocks."""
        table = [self.pool.take() for _ in text]
        for block, letter in zip(table, text, strict=True):
            self.blocks.held[block] = ord(letter)
        table = self.cache.insert(names(text), table, state(text))
        self.cache.check_integrity()
        if not hold:
            self.release(table)
        return table

    def release(self, table):
        for block in table:
            self.pool.release(block)

    def find(self, text):
        """The length found; what is found is right."""
        match = self.cache.acquire(names(text))
        self.cache.check_integrity()
        length = len(match.blocks)
        assert [chr(self.blocks.held[block][0]) for block in match.blocks] == list(text[:length])
        if length:
            assert np.array_equal(match.snapshot, state(text[:length]))
        else:
            assert match.snapshot is None
        self.release(match.blocks)
        return length


def names(text):
    return BlockHasher(root_hash("", ""), 1).digests([ord(letter) for letter in text], len(text))


def state(text):
    return np.frombuffer(names(text)[-1][:STATE], np.uint8)


def test_only_edges_with_a_state_are_found():
    setup = Setup()
    setup.keep("abcd")
    assert [setup.find(text) for text in ("abcdef", "abcd", "abc", "abxd", "")] == [4, 4, 0, 0, 0]
    setup.keep("ab")
    assert [setup.find(text) for text in ("abcdef", "abc", "a")] == [4, 2, 0]
    assert (setup.cache.num_blocks, setup.cache.num_snapshots) == (4, 2)
    assert setup.cache.num_bytes == 4 * BLOCK + 2 * STATE


def test_equal_blocks_are_kept_once_and_the_caller_gets_the_kept_ones():
    setup = Setup()
    first = setup.keep("abc", hold=True)
    second = setup.keep("abd", hold=True)
    assert second[:2] == first[:2]
    assert setup.pool.num_free == 12 - 4
    assert [setup.pool.num_holders(block) for block in first] == [3, 3, 2]
    # A caller whose own block was kept already by somebody else's state needs no state.
    again = setup.cache.insert(names("abc"), first, None)
    assert again == first


def test_the_prefix_unused_for_longest_goes_first_with_the_blocks_only_it_used():
    setup = Setup()
    for text in ("abc", "abd", "xy"):
        setup.keep(text)
    setup.find("abc")
    assert setup.cache.evict_oldest()
    assert [setup.find(text) for text in ("abc", "abd", "xy")] == [3, 0, 2]
    assert setup.cache.num_blocks == 5
    assert setup.cache.evict_oldest()
    assert [setup.find(text) for text in ("abc", "xy")] == [0, 2]
    assert setup.cache.evict_oldest()
    assert not setup.cache.evict_oldest()
    assert setup.pool.num_free == 12
    assert setup.metrics.num_evictions == 3


def test_a_shorter_prefix_outlives_the_longer_ones_that_start_with_it():
    setup = Setup()
    for text in ("ab", "abcd", "abx"):
        setup.keep(text)
    order = []
    while setup.cache.evict_oldest():
        order.append([setup.cache.has_snapshot(names(text)[-1]) for text in ("ab", "abcd", "abx")])
    assert order == [[True, False, True], [True, False, False], [False, False, False]]


def test_the_byte_limit_counts_blocks_and_states():
    setup = Setup(max_bytes=2 * (2 * BLOCK + STATE))
    setup.keep("ab")
    setup.keep("cd")
    assert setup.cache.num_snapshots == 2
    setup.keep("ef")
    assert [setup.find(text) for text in ("ab", "cd", "ef")] == [0, 2, 2]
    # Too long to be kept at all: the caller's blocks stay its own, and nothing else is left.
    table = setup.keep("ghijklmn", hold=True)
    assert setup.cache.num_blocks == 0
    assert setup.pool.num_free == 12 - 8
    setup.release(table)


def test_blocks_in_use_are_not_evicted_for_their_sake():
    setup = Setup()
    used = setup.keep("abc", hold=True)
    setup.keep("xyz")
    setup.find("xyz")
    assert setup.cache.num_evictable() == 3
    # The older one is in use: evicting it frees nothing.
    assert setup.cache.evict_blocks(1) == 3
    assert setup.cache.evict_blocks(1) == 0
    assert (setup.cache.has_snapshot(names("abc")[-1]), setup.cache.num_blocks) == (True, 3)
    setup.release(used)
    assert setup.cache.evict_blocks(2) == 3
    assert setup.pool.num_free == 12


def test_evicted_prefixes_come_back_from_disk(tmp_path):
    setup = Setup(folder=tmp_path)
    for text in ("abc", "abd"):
        setup.keep(text)
    while setup.cache.evict_oldest():
        pass
    assert setup.pool.num_free == 12
    assert setup.spill.num_files == 4 + 2
    setup.blocks.held[:] = 0
    assert [setup.find(text) for text in ("abcz", "abd", "ab")] == [3, 3, 0]
    assert setup.cache.num_blocks == 4


def test_flush_and_a_restart(tmp_path):
    setup = Setup(folder=tmp_path)
    for text in ("abcd", "ab", "x"):
        setup.keep(text)
    setup.cache.flush()
    setup.cache.flush()
    assert setup.spill.num_files == 5 + 3
    again = Setup(folder=tmp_path)
    assert [again.find(text) for text in ("abc", "abcde", "xy")] == [2, 4, 1]


@pytest.mark.parametrize("harmed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["block", "state"])
def test_a_damaged_file_shortens_what_is_found_and_leaks_nothing(tmp_path, caplog, harmed, kind):
    setup = Setup(folder=tmp_path)
    for text in ("a", "ab", "abc"):
        setup.keep(text)
    setup.cache.flush()
    path = tmp_path / f"{names('abc')[harmed].hex()}.{kind}"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    again = Setup(folder=tmp_path)
    # Without its state an edge is passed by; without its block nothing after it can be reached.
    expected = harmed if kind == "block" else 3 if harmed < 2 else 2
    assert again.find("abcd") == expected
    assert ("damaged" in caplog.text) == (kind == "block" or harmed == 2)
    again.pool.check_integrity(again.cache.check_integrity())


def test_what_has_no_room_in_memory_stays_on_disk(tmp_path):
    setup = Setup(folder=tmp_path)
    setup.keep("abcde")
    setup.keep("ab")
    setup.cache.flush()
    again = Setup(folder=tmp_path, size=6)
    held = [again.pool.take() for _ in range(3)]
    # Nobody who needs all five is admitted now, so a part of them is not looked for.
    assert again.find("abcdef") == 0
    assert again.find("abx") == 2
    again.release(held)
    assert again.find("abcdef") == 5


def test_loading_evicts_others_and_never_what_it_builds_on(tmp_path):
    setup = Setup(folder=tmp_path, size=6)
    setup.keep("abcd")
    setup.cache.flush()
    again = Setup(folder=tmp_path, size=6)
    assert again.find("abcd") == 4
    again.cache.evict_oldest()
    again.keep("ab")
    again.keep("wxyz")
    # "ab" is the oldest now, and is what "abcd" starts with: "wxyz" has to go.
    assert again.pool.num_free == 0
    assert again.find("abcd") == 4
    assert not again.cache.has_snapshot(names("wxyz")[-1])


def test_a_full_disk_costs_the_prefix_only(tmp_path, monkeypatch, caplog):
    setup = Setup(folder=tmp_path)
    setup.keep("abc")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert setup.cache.evict_blocks(1) == 3
    setup.keep("xyz")
    setup.cache.flush()
    assert "No space left" in caplog.text
    assert [setup.find(text) for text in ("abc", "xyz")] == [0, 3]


def break_child_count(cache):
    cache._nodes[names("ab")[1]].num_children += 1


def break_leaf(cache):
    cache._edges.pop(names("abc")[-1]).snapshot = None


def break_edges(cache):
    cache._edges.popitem()


def break_parent(cache):
    node = cache._nodes.pop(names("ab")[1])
    assert node.num_children


def break_order(cache):
    cache._edges.move_to_end(names("abc")[-1])


def break_blocks(cache):
    cache._nodes[names("a")[0]].block = cache._nodes[names("ab")[1]].block


def break_bytes(cache):
    cache._max_bytes = 1


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (break_child_count, "counts 2 children, has 1"),
        (break_leaf, "leaf without a state"),
        (break_edges, "contradict"),
        (break_parent, "evicted parent"),
        (break_order, "newer than an edge above"),
        (break_blocks, "share one block"),
        (break_bytes, "bytes of 1"),
    ],
)
def test_a_damaged_tree_is_noticed(harm, text):
    setup = Setup()
    for prefix in ("abc", "a"):
        setup.keep(prefix)
    setup.cache.check_integrity()
    harm(setup.cache)
    with pytest.raises(IntegrityError, match=text):
        setup.cache.check_integrity()
