"""Any order of submit, cancel, step, preempt, evict, fail and restart gives the tokens of one at a time."""

import logging
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gossamer.engine.api import Embeddings, EngineError, SamplingParams
from gossamer.engine.core import EngineCore
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.engine.settings import CacheSettings, EngineSettings, SpillSettings

from .fake_runner import FakeRunner, Misuse

SEED = 3
# Prompts are beginnings of few texts with a tail of their own, so that they share prefixes of all lengths.
TEXTS = ([1, 2, 3, 4] * 8, [1, 2, 3, 4, 5, 6] * 6, [7] * 40)

prompts = st.builds(
    lambda text, length, tail: [*TEXTS[text][:length], *tail],
    st.integers(0, len(TEXTS) - 1),
    st.integers(0, 20),
    st.lists(st.integers(0, FakeRunner.vocab_size - 1), min_size=1, max_size=4),
)
# Where pictures lie in a prompt, and which of few they are: tokens before it, length and content of each.
pictures = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 7), st.integers(0, 2)), max_size=2)


def embedded(prompt, pictures):
    """The pictures that the prompt has room for."""
    found, place = [], 0
    for gap, length, content in pictures:
        start, place = place + gap, place + gap + length
        if place > len(prompt):
            break
        rows = np.arange(2 * length, dtype=np.float32).reshape(length, 2) + 100 * content
        found.append(Embeddings(start=start, rows=rows, digest=b"%16d" % (10 * content + length)))
    return found


sampling = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 14),
    temperature=st.sampled_from([0.0, 0.8, 5.0]),
    top_p=st.sampled_from([1.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 1.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logprobs=st.sampled_from([None, 2]),
    seed=st.one_of(st.none(), st.integers(0, 3)),
    stop_token_ids=st.sampled_from([frozenset(), frozenset({0}), frozenset({1, 5, 9})]),
)
standing = st.builds(
    RequestOptions,
    priority=st.integers(-2, 2),
    deadline_s=st.one_of(st.none(), st.integers(1, 30).map(float)),
    fairness_key=st.sampled_from(["a", "b", "c"]),
    cache_salt=st.sampled_from(["", "", "other"]),
)
sizes = st.fixed_dictionaries(
    {"num_blocks": st.integers(6, 16), "num_slots": st.integers(1, 4), "block_size": st.integers(2, 4)}
)
caches = st.fixed_dictionaries(
    {
        "snapshot_every": st.integers(1, 4),
        "snapshot_last": st.booleans(),
        "max_bytes": st.one_of(st.none(), st.integers(50, 700)),
    }
)


class Traffic(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.folder = Path(tempfile.mkdtemp())
        self.asked = {}
        self.found = {}
        self.num_done = 0

    @initialize(
        sizes=sizes,
        cache=st.one_of(st.none(), caches),
        spill_bytes=st.one_of(st.none(), st.integers(500, 20_000)),
        extra=st.integers(0, 9),
        watermark=st.sampled_from([0.0, 0.2]),
    )
    def begin(self, sizes, cache, spill_bytes, extra, watermark):
        self.sizes = sizes
        spill = None
        if cache is not None and spill_bytes is not None:
            spill = SpillSettings(directory=self.folder, max_bytes=spill_bytes, fingerprint="fake")
        self.settings = EngineSettings(
            max_batch_tokens=sizes["block_size"] + extra,
            watermark=watermark,
            aging_s=5.0,
            cache=None if cache is None else CacheSettings(**cache, spill=spill),
            seed=SEED,
        )
        self.restart()

    @rule(prompt=prompts, pictures=pictures, params=sampling, options=standing)
    def submit(self, prompt, pictures, params, options):
        given = embedded(prompt, pictures)
        number = len(self.asked)
        try:
            request = self.core.submit(prompt, params, options, embeddings=given, request_id=number)
        except EngineError:
            # Only what one alone would be refused too.
            with pytest.raises(EngineError):
                self.reference(prompt, params, given)
            return
        self.asked[request] = (prompt, params, given)
        self.found[request] = []

    @rule(steps=st.integers(1, 4))
    def step(self, steps):
        for _ in range(steps):
            if self.core.has_work:
                self.take(self.core.step())
                self.core.check_integrity()

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cancel(self, data):
        request = data.draw(st.sampled_from(self.live()))
        assert self.core.cancel(request)
        assert not self.core.cancel(request)
        self.take(self.core.take_events())
        assert request not in self.live()

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def preempt(self, data):
        self.core.preempt(data.draw(st.sampled_from(self.live())))

    @rule()
    def evict(self):
        before = self.core.stats().cache_snapshots
        assert self.core.evict() == (before > 0)
        assert self.core.stats().cache_snapshots == max(before - 1, 0)

    @rule(seconds=st.integers(1, 9))
    def wait(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.live())
    @rule()
    def fail(self):
        """A step whose forward pass breaks down, after it has touched all its slots."""

        def broken(segments):
            for segment in segments:
                self.runner.clear_slot(segment.slot)
            raise OSError("broken")

        self.runner.before_run = broken
        logging.disable(logging.ERROR)
        self.take(self.core.step(), allowed=(OSError,))
        logging.disable(logging.NOTSET)
        self.runner.before_run = lambda segments: None

    @precondition(lambda self: not self.live())
    @rule()
    def restart(self):
        if hasattr(self, "core"):
            self.take(self.core.take_events())
            self.core.flush()
        self.runner = FakeRunner(**self.sizes, max_context=48)
        self.core = EngineCore(self.runner, self.settings, clock=lambda: self.now)

    @invariant()
    def books_agree(self):
        if not hasattr(self, "core"):
            return
        self.core.check_integrity()
        spill = self.settings.cache and self.settings.cache.spill
        if spill:
            files = list(self.folder.iterdir())
            assert sum(f.stat().st_size for f in files) == self.core.stats().spill_bytes <= spill.max_bytes

    def teardown(self):
        try:
            if hasattr(self, "core"):
                self.drain()
        finally:
            shutil.rmtree(self.folder)

    def drain(self):
        for _ in range(3000):
            if not self.core.has_work:
                break
            self.take(self.core.step())
            self.core.check_integrity()
        stats = self.core.stats()
        assert (stats.num_running, stats.num_waiting, self.core.has_work) == (0, 0, False)
        assert stats.num_free_blocks + stats.cache_blocks == stats.num_blocks
        while self.core.evict():
            self.core.check_integrity()
        assert self.core.stats().num_free_blocks == stats.num_blocks
        assert not self.live()
        assert self.num_done == len(self.asked)
        batches = [sum(len(s.token_ids) for s in batch) for batch in self.runner.batches]
        assert max(batches, default=0) <= self.settings.max_batch_tokens

    def live(self):
        return [i for i, events in self.found.items() if not (events and events[-1].is_last)]

    def reference(self, prompt, params, given):
        runner = FakeRunner(**self.sizes, max_context=48)
        return generate(runner, prompt, params, embeddings=given, default_seed=SEED)

    def take(self, events, allowed=()):
        for event in events:
            self.found[event.request_id].append(event)
            if event.error is not None:
                assert isinstance(event.error.__cause__, allowed), event.error
                assert not isinstance(event.error.__cause__, Misuse)
            if event.is_last:
                self.finished(event.request_id)

    def finished(self, request):
        """What was generated is what one alone generates, all of it unless something ended it early."""
        self.num_done += 1
        events = self.found[request]
        expected = self.reference(*self.asked[request])
        got = [event.token for event in events if event.token is not None]
        complete = bool(got) and got[-1].finish_reason in ("stop", "length")
        if not complete and got and got[-1].token_id is None:
            assert got.pop().finish_reason in ("cancelled", "deadline")
        assert got == (expected if complete else expected[: len(got)])
        assert events[-1].cached_tokens < len(self.asked[request][0])


TestTraffic = Traffic.TestCase
