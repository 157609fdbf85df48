"""The native network as a runner: segments in, logits out; caches sized to memory."""

import logging

import numpy as np
import pytest

from gossamer.checkpoint.bf16 import bf16_to_f32
from gossamer.config import presets
from gossamer.engine import native_runner
from gossamer.engine.api import EngineError
from gossamer.engine.native_runner import build, fit
from gossamer.engine.runner import Segment
from gossamer.kernels import backend
from gossamer.kernels.cache_rows import block_bytes, slot_bytes
from gossamer.kernels.plain_network import PlainNetwork
from gossamer.kernels.random_weights import random_weights
from model.small import FAMILIES

MEMORY = 1_500_000


def runner_of(config, **options):
    cache = fit(config, memory_bytes=MEMORY, max_sequences=3)
    return build(config, random_weights(config, 1), cache=cache, **options)


def test_segments_of_several_sequences_get_the_rows_they_want():
    config = presets.load("debug")
    runner = runner_of(config)
    ids = np.random.default_rng(1).integers(0, config.vocab_size, 100).tolist()
    alone = runner.run([Segment(token_ids=ids, start=0, slot=0, blocks=[0, 1], want_logits=True)])
    assert alone.shape == (1, config.vocab_size)
    for slot in (0, 1):
        runner.clear_slot(slot)
    first = runner.run(
        [
            Segment(token_ids=ids[:70], start=0, slot=1, blocks=[5, 3], want_logits=False),
            Segment(token_ids=ids[:9], start=0, slot=0, blocks=[4], want_logits=True),
        ]
    )
    assert first.shape == (1, config.vocab_size)
    second = runner.run(
        [
            Segment(token_ids=ids[9:10], start=9, slot=0, blocks=[4], want_logits=False),
            Segment(token_ids=ids[70:], start=70, slot=1, blocks=[5, 3], want_logits=True),
        ]
    )
    np.testing.assert_array_equal(second[0], alone[0])


def test_loads_are_those_of_whole_steps_and_stay_as_they_were_given():
    config = presets.load("debug")
    runner = runner_of(config)
    before = runner.expert_loads()
    runner.run([Segment(token_ids=[1, 2, 3], start=0, slot=0, blocks=[0], want_logits=True)])
    after = runner.expert_loads()
    moe = sum(config.is_moe_layer(layer) for layer in range(config.num_layers))
    assert before.sum() == 0
    assert after.sum() == 3 * moe * config.moe.experts_per_token
    runner.run([Segment(token_ids=[4], start=3, slot=0, blocks=[0], want_logits=True)])
    assert after.sum() == 3 * moe * config.moe.experts_per_token
    # Between steps a reader in another thread gets the very array: nothing is counted in it any more.
    assert runner.expert_loads() is runner.expert_loads()


@pytest.mark.parametrize("numpy_only", [False, True])
def test_embeddings_stand_in_for_tokens_wherever_the_passes_are_cut(numpy_only, monkeypatch):
    """Rows of the table itself give the tokens' own logits, others do not, and neighbours are left alone."""
    if numpy_only:
        monkeypatch.setattr(backend, "available", lambda: [])
    config = presets.load("debug")
    runner = runner_of(config)
    ids = np.random.default_rng(1).integers(0, config.vocab_size, 30).tolist()
    weights = {w.name: w for w in random_weights(config, 1)}
    rows = bf16_to_f32(weights["model.embed_tokens"].data)[ids]

    def logits(given, cuts, shown):
        for slot in (0, 1):
            runner.clear_slot(slot)
        for start, end in zip((0, *cuts), (*cuts, 30), strict=True):
            inside = [
                (max(at - start, 0), some[max(start - at, 0) : end - at])
                for at, some in given
                if at < end and at + len(some) > start
            ]
            other = Segment(token_ids=ids[start:end], start=start, slot=0, blocks=[3], want_logits=end == 30)
            mine = Segment(
                token_ids=shown[start:end],
                start=start,
                slot=1,
                blocks=[1],
                want_logits=end == 30,
                embeddings=inside,
            )
            found = runner.run([other, mine])
        return found

    nothing = [0 if 4 <= i < 11 or 20 <= i < 22 else token for i, token in enumerate(ids)]
    given = [(4, rows[4:11]), (20, rows[20:22])]
    plain = logits([], (), ids)
    for cuts in ((), (4,), (7, 21)):
        np.testing.assert_array_equal(logits(given, cuts, nothing), plain)
    changed = logits([(4, rows[4:11] + np.float32(0.1)), given[1]], (7,), nothing)
    np.testing.assert_array_equal(changed[0], plain[0])
    assert not np.allclose(changed[1], plain[1], atol=1e-4)


def test_embeddings_outside_the_pass_or_of_another_width_are_engine_errors():
    runner = runner_of(presets.load("debug"))
    for place, width, names in ((1, 0, "row 1 does not exist"), (0, 1, r"must be \[1, ")):
        rows = np.zeros((1, runner.hidden_size + width), np.float32)
        segment = Segment(
            token_ids=[1], start=0, slot=0, blocks=[0], want_logits=True, embeddings=[(place, rows)]
        )
        with pytest.raises(EngineError, match=names):
            runner.run([segment])


def test_a_segment_that_does_not_fit_is_an_engine_error():
    runner = runner_of(presets.load("debug"))
    with pytest.raises(EngineError, match="slot 99"):
        runner.run([Segment(token_ids=[1], start=0, slot=99, blocks=[0], want_logits=True)])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "fp8"])
@pytest.mark.parametrize("state", ["f32", "bf16"])
def test_caches_take_the_memory_they_were_given(family, dtype, state):
    config = FAMILIES[family]()
    cache = fit(config, memory_bytes=MEMORY, max_sequences=3, dtype=dtype, state=state)
    runner = build(config, random_weights(config, 1), cache=cache)
    assert runner.slot_bytes == slot_bytes(config, state)
    assert runner.block_bytes == block_bytes(config, dtype, native_runner.BLOCK_SIZE)
    total = runner.num_slots * runner.slot_bytes + runner.num_blocks * runner.block_bytes
    assert MEMORY - runner.block_bytes < total <= MEMORY
    assert runner.max_context == min(config.max_context, runner.num_blocks * runner.block_size)


def test_little_memory_means_fewer_sequences_and_too_little_is_refused():
    config = presets.load("nano")
    state, block = slot_bytes(config, "f32"), block_bytes(config, "bf16", native_runner.BLOCK_SIZE)
    cache = fit(config, memory_bytes=2 * state + block, max_sequences=100)
    assert (cache.num_slots, cache.num_blocks) == (1, (state + block) // block)
    assert fit(config, memory_bytes=20 * state, max_sequences=4).num_slots == 4
    with pytest.raises(EngineError, match=f"{state + block - 1:,} bytes do not hold"):
        fit(config, memory_bytes=state + block - 1, max_sequences=1)


def test_blocks_beyond_every_context_are_not_made():
    config = presets.load("debug")
    cache = fit(config, memory_bytes=1 << 34, max_sequences=2)
    assert cache.num_blocks == 2 * config.max_context // native_runner.BLOCK_SIZE


def test_numpy_takes_over_where_nothing_is_built_and_says_so(monkeypatch, caplog):
    config = presets.load("debug")
    native = runner_of(config)
    monkeypatch.setattr(backend, "available", lambda: [])
    with caplog.at_level(logging.WARNING, logger="gossamer.engine"):
        plain = runner_of(config)
    assert "not built" in caplog.text
    assert isinstance(plain._network, PlainNetwork)
    segment = Segment(token_ids=[3, 1, 4, 1, 5], start=0, slot=0, blocks=[0], want_logits=True)
    np.testing.assert_allclose(plain.run([segment]), native.run([segment]), rtol=1e-3, atol=1e-4)
    with pytest.raises(backend.BackendError):
        runner_of(config, instructions="avx1024")
