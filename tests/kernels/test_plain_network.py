"""The numpy network equals the native one, on its own weights and on random ones."""

from dataclasses import replace

import numpy as np
import pytest

from gossamer.kernels import backend
from gossamer.kernels.network import CacheSize, Network, NetworkError, Precision, tables_of
from gossamer.kernels.plain_network import PlainNetwork
from gossamer.kernels.plain_ops import values
from gossamer.kernels.random_weights import random_weights
from model.small import FAMILIES, debug

SEED = 11


def both(config, dtype="f32", state="f32", precision=None, instructions=None):
    cache = CacheSize(block_size=8, num_blocks=12, num_slots=3, dtype=dtype, state=state)
    weights = list(random_weights(config, SEED))
    native = Network(config, weights, cache=cache, precision=precision, instructions=instructions)
    return native, PlainNetwork(config, weights, cache=cache, precision=precision)


def feed(net, ids, parts, slot=1, blocks=(5, 2, 7, 1)):
    net.clear_slot(slot)
    position, rows = 0, []
    for count in parts:
        spans = np.array([[count, position, slot, len(blocks), 1]], np.int64)
        some = np.array(ids[position : position + count], np.int64)
        rows.append(net.run(some, spans, tables_of([blocks]))[0])
        position += count
    return np.stack(rows)


# A rounding difference may move a value of the cache to the next number.
@pytest.mark.parametrize(
    ("dtype", "state", "limit"),
    [("f32", "f32", 2e-5), ("bf16", "f32", 5e-3), ("fp8", "f32", 2e-2), ("f32", "bf16", 5e-3)],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_both_networks_agree(family, dtype, state, limit):
    config = FAMILIES[family]()
    native, plain = both(config, dtype, state)
    ids = np.random.default_rng(SEED).integers(0, config.vocab_size, 25).tolist()
    want, got = (feed(net, ids, (6, 1, 1, 17)) for net in (native, plain))
    scale = np.sqrt(np.mean(want.astype(np.float64) ** 2))
    assert np.sqrt(np.mean((got - want).astype(np.float64) ** 2)) <= limit * scale
    np.testing.assert_array_equal(native.expert_loads(), plain.expert_loads())


@pytest.mark.parametrize("instructions", backend.available())
@pytest.mark.parametrize("family", FAMILIES)
def test_both_networks_round_inputs_to_bf16_alike(family, instructions):
    config = FAMILIES[family]()
    native, plain = both(config, precision=Precision(activations="bf16"), instructions=instructions)
    ids = np.random.default_rng(SEED).choice(config.vocab_size, 12, replace=False).tolist()
    got, want = (np.stack([feed(net, [token], (1,))[0] for token in ids]) for net in (native, plain))
    scale = np.sqrt(np.mean(want.astype(np.float64) ** 2))
    error = np.sqrt(np.mean((got - want).astype(np.float64) ** 2, 1)) / scale
    # An input next to the edge between two BF16 numbers may fall to either side, and what follows with it.
    assert np.median(error) <= 2e-5
    assert error.max() <= 3e-2


def test_what_numpy_cannot_round_is_refused():
    config = debug()
    weights, cache = list(random_weights(config, SEED)), CacheSize(num_blocks=1, num_slots=1)
    with pytest.raises(NetworkError, match="need native kernels; install"):
        PlainNetwork(config, weights, cache=cache, precision=Precision(activations="int8"))
    full = [replace(w, kind="f32", data=values(w), scales=None) for w in weights if w.kind != "vector"]
    full += [w for w in weights if w.kind == "vector"]
    for make in (PlainNetwork, Network):
        with pytest.raises(NetworkError, match="activations 'bf16' want matrices stored as BF16 or MXFP4"):
            make(config, full, cache=cache, precision=Precision(activations="bf16"))


def test_the_split_does_not_change_a_bit():
    config = debug()
    _, plain = both(config)
    ids = np.random.default_rng(SEED).integers(0, config.vocab_size, 25).tolist()
    np.testing.assert_array_equal(feed(plain, ids, (25,))[-1], feed(plain, ids, (3, 10, 12))[-1])


def test_saved_slots_and_blocks_bring_a_sequence_back():
    config = debug()
    _, plain = both(config, "fp8", "bf16")
    ids = np.random.default_rng(SEED).integers(0, config.vocab_size, 25).tolist()
    want = feed(plain, ids, (25,))[-1]
    feed(plain, ids[:20], (20,))
    slot, blocks = plain.save_slot(1), [plain.read_block(b) for b in (5, 2, 7)]
    assert slot.size == plain.slot_bytes
    assert blocks[0].size == plain.block_bytes
    feed(plain, ids[::-1], (25,))
    plain.restore_slot(0, slot)
    for block, data in zip((3, 4, 6), blocks, strict=True):
        plain.write_block(block, data)
    spans = np.array([[5, 20, 0, 4, 1]], np.int64)
    got = plain.run(np.array(ids[20:], np.int64), spans, tables_of([(3, 4, 6, 0)]))[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("span", "table", "ids", "message"),
    [
        ([3, 0, 3, 1, 1], [0], [1, 2, 3], "slot 3"),
        ([3, 6, 0, 1, 1], [0], [1, 2, 3], "too short"),
        ([3, 0, 0, 1, 1], [12], [1, 2, 3], "block 12"),
        ([3, 0, 0, 1, 1], [0], [1, 2, 320], "token 320"),
        ([0, 0, 0, 1, 1], [0], [], "no tokens"),
    ],
)
def test_passes_that_do_not_fit_are_refused_by_both(span, table, ids, message):
    for net in both(debug()):
        with pytest.raises(NetworkError, match=message):
            net.run(np.array(ids, np.int64), np.array([span], np.int64), np.array(table, np.int32))


def test_random_weights_repeat_and_a_missing_one_is_named():
    config = debug()
    first, second, other = (list(random_weights(config, seed)) for seed in (1, 1, 2))
    assert [w.name for w in first] == [w.name for w in second]
    assert all(np.array_equal(a.data, b.data) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a.data, b.data) for a, b in zip(first, other, strict=True))
    cache = CacheSize(num_blocks=1, num_slots=1)
    without = [w for w in first if w.name != "model.norm.weight"]
    with pytest.raises(NetworkError, match=r"model\.norm\.weight"):
        Network(config, without, cache=cache)
    plain = PlainNetwork(config, without, cache=cache)
    with pytest.raises(NetworkError, match=r"model\.norm\.weight"):
        plain.run(np.array([1], np.int64), np.array([[1, 0, 0, 1, 1]], np.int64), np.array([0], np.int32))
