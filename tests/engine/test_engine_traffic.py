"""Long random traffic on tiny memory: every answer is that of one request at a time, and all of it happened.

The state machine (`test_engine_machine`) finds short orders of events that break something; this one makes
sure of the counts: hundreds of requests in the quick tier, ten thousand in `make proof`.
"""

import os
import random

import pytest

from gossamer.engine.api import SamplingParams
from gossamer.engine.core import EngineCore
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.engine.settings import CacheSettings, EngineSettings, SpillSettings

from .fake_runner import FakeRunner

NUM_REQUESTS = {"quick": 400, "slow": 2_000, "proof": 10_000}
SIZES = {"num_blocks": 14, "num_slots": 4, "block_size": 3, "max_context": 42}


def a_request(rng, texts):
    text = rng.choice(texts)
    prompt = text[: rng.randint(1, 24)] + [rng.randrange(13) for _ in range(rng.randint(0, 3))]
    params = SamplingParams(
        max_tokens=rng.randint(1, 15),
        temperature=rng.choice([0.0, 1.0, 4.0]),
        seed=rng.choice([None, 0, 1]),
        presence_penalty=rng.choice([0.0, 1.0]),
        repetition_penalty=rng.choice([1.0, 1.5]),
        stop_token_ids=frozenset(rng.sample(range(13), rng.choice([0, 0, 1]))),
    )
    options = RequestOptions(
        priority=rng.randint(-1, 1),
        fairness_key=rng.choice("abc"),
        cache_salt=rng.choice(["", "", "other"]),
        deadline_s=rng.choice([None] * 5 + [40.0]),
    )
    return prompt, params, options


class Soak:
    """One engine under traffic; `restart` replaces it by a new one on the same folder."""

    def __init__(self, settings, seed):
        self.rng = random.Random(seed)
        self.settings = settings
        self.texts = [[self.rng.randrange(13) for _ in range(24)] for _ in range(4)]
        self.now, self.num_asked = 0.0, 0
        self.asked, self.found, self.live = {}, {}, set()
        self.ended = {"stop": 0, "length": 0, "cancelled": 0, "deadline": 0}
        self.totals = {"preemptions": 0, "resumed": 0, "evictions": 0, "from_disk": 0}
        self.start()

    def start(self):
        self.runner = FakeRunner(**SIZES)
        write = self.runner.write_block

        def counted(block, data):
            self.totals["from_disk"] += 1
            write(block, data)

        self.runner.write_block = counted
        self.core = EngineCore(self.runner, self.settings, clock=lambda: self.now)

    def restart(self):
        while self.core.has_work:
            self.step()
        metrics = self.core.metrics
        self.totals["preemptions"] += metrics.num_preemptions
        self.totals["resumed"] += metrics.num_resumed_tokens
        self.totals["evictions"] += metrics.num_evictions
        stats = self.core.stats()
        assert stats.num_free_blocks + stats.cache_blocks == stats.num_blocks
        self.core.flush()
        self.start()

    def submit(self):
        prompt, params, options = a_request(self.rng, self.texts)
        request = self.core.submit(prompt, params, options, request_id=self.num_asked)
        self.num_asked += 1
        self.asked[request], self.found[request] = (prompt, params), []
        self.live.add(request)

    def step(self):
        self.now += 1.0
        for event in self.core.step():
            assert event.error is None
            self.found[event.request_id].append(event.token)
            if event.is_last:
                self.finish(event.request_id)
        self.core.check_integrity()

    def finish(self, request):
        self.live.discard(request)
        got = self.found.pop(request)
        self.ended[got[-1].finish_reason] += 1
        expected = generate(FakeRunner(**SIZES), *self.asked.pop(request), default_seed=self.settings.seed)
        if got[-1].token_id is None:
            got.pop()
            expected = expected[: len(got)]
        assert got == expected

    def run(self, num_requests):
        while self.num_asked < num_requests:
            for _ in range(self.rng.choice([0, 0, 1, 1, 2, 6])):
                if len(self.live) < 12:
                    self.submit()
            if self.live and self.rng.random() < 0.05:
                self.core.cancel(self.rng.choice(sorted(self.live)))
            if self.rng.random() < 0.05:
                self.core.evict()
            if self.rng.random() < 0.005:
                self.restart()
            self.step()
        self.restart()
        assert not self.live
        assert not self.found


@pytest.mark.parametrize("spilling", [False, True], ids=["memory", "disk"])
def test_random_traffic_equals_one_at_a_time(tmp_path, seeded, spilling):
    spill = SpillSettings(directory=tmp_path, max_bytes=9_000, fingerprint="fake") if spilling else None
    cache = CacheSettings(snapshot_every=2, max_bytes=1_000, spill=spill)
    soak = Soak(EngineSettings(max_batch_tokens=9, aging_s=20.0, cache=cache, seed=5), seeded)
    soak.run(NUM_REQUESTS[os.environ.get("HYPOTHESIS_PROFILE", "quick")] // 2)
    # What is meant to be tried was tried.
    assert min(soak.ended.values()) > 0, soak.ended
    assert min(n for name, n in soak.totals.items() if name != "from_disk") > 10, soak.totals
    assert (soak.totals["from_disk"] > 10) == spilling, soak.totals
