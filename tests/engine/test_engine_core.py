"""The engine core around a fake model that notices every mistake: same tokens as one request at a time."""

import numpy as np
import pytest

from gossamer.engine.api import BanTokens, ContextLengthError, EngineError, SamplingParams, SubmitError
from gossamer.engine.core import EngineCore
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.engine.settings import CacheSettings, EngineSettings, SettingsError

from .fake_runner import FakeRunner


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def make(runner=None, clock=None, **settings):
    runner = runner or FakeRunner()
    settings = {"max_batch_tokens": 8, "watermark": 0.0, "seed": 1, **settings}
    return runner, EngineCore(runner, EngineSettings(**settings), clock=clock or Clock())


def greedy(max_tokens, **params):
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, **params)


def drain(core, limit=500):
    """Run to the end; returns id -> events."""
    found = {}
    for _ in range(limit):
        if not core.has_work:
            return found
        for event in core.step():
            found.setdefault(event.request_id, []).append(event)
        core.check_integrity()
    raise AssertionError(f"still at work after {limit} steps: {core.stats()}")


def tokens(events):
    return [event.token.token_id for event in events]


def reference(prompt, params, **runner):
    events = generate(FakeRunner(**runner), prompt, params, default_seed=1)
    return [event.token_id for event in events], [(e.logprob, e.top_logprobs) for e in events]


def assert_nothing_leaks(core):
    core.check_integrity()
    stats = core.stats()
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_free_blocks + stats.cache_blocks == stats.num_blocks


def test_many_at_once_equal_one_at_a_time():
    runner, core = make()
    asked = {}
    for seed in range(9):
        prompt = [(seed * 5 + i * i) % runner.vocab_size for i in range(1 + 3 * seed)]
        params = SamplingParams(max_tokens=5 + seed, seed=seed, temperature=0.9, top_p=0.9, logprobs=3)
        asked[core.submit(prompt, params)] = (prompt, params)
    found = drain(core)
    for request_id, (prompt, params) in asked.items():
        events = [event.token for event in found[request_id]]
        expected, logprobs = reference(prompt, params)
        assert [event.token_id for event in events] == expected
        assert [(event.logprob, event.top_logprobs) for event in events] == logprobs
        assert all(event.logprob < 0 and len(event.top_logprobs) == 3 for event in events)
        assert [event.index for event in events] == list(range(len(events)))
        assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + ["length"]
    assert max(len(batch) for batch in runner.batches) == 4
    assert max(sum(len(s.token_ids) for s in batch) for batch in runner.batches) <= 8
    assert_nothing_leaks(core)


def test_pieces_of_a_prompt_end_at_blocks_and_decoding_goes_on_beside_them():
    runner, core = make(cache=None)
    core.submit([1, 2], greedy(9))
    core.step()
    core.submit([3] * 21, greedy(1))
    while core.has_work:
        core.step()
    long = [s for batch in runner.batches for s in batch if s.slot == runner.batches[1][-1].slot]
    assert [(s.start, len(s.token_ids), s.want_logits) for s in long] == [
        (0, 4, False), (4, 4, False), (8, 4, False), (12, 4, False), (16, 5, True)
    ]  # fmt: skip
    # While the long prompt was read, the other one got a token in every step, and before it.
    assert [len(batch) for batch in runner.batches] == [1, 2, 2, 2, 2, 2, 1, 1, 1]
    assert all(len(batch[0].token_ids) == 1 for batch in runner.batches[1:])


def test_a_stop_token_ends_and_is_passed_on():
    _, core = make()
    expected, _ = reference([1, 2, 3], greedy(12))
    stop = expected[4]
    request = core.submit([1, 2, 3], greedy(12, stop_token_ids=frozenset({stop})))
    events = drain(core)[request]
    assert tokens(events) == expected[: expected.index(stop) + 1]
    assert events[-1].token.finish_reason == "stop"


def test_without_a_limit_the_context_is_filled_and_small_memory_is_the_context():
    _, core = make(FakeRunner(max_context=20))
    request = core.submit([1, 2, 3], SamplingParams(temperature=0))
    assert len(drain(core)[request]) == 17
    _, core = make(FakeRunner(num_blocks=3))
    assert core.max_context == 12
    with pytest.raises(ContextLengthError):
        core.submit([1] * 12, greedy(1))
    request = core.submit([1] * 11, SamplingParams(temperature=0))
    assert len(drain(core)[request]) == 1


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [
        ([], {}, SubmitError),
        ([13], {}, SubmitError),
        ([-1], {}, SubmitError),
        ([1] * 64, {}, ContextLengthError),
        ([1] * 60, {"max_tokens": 5}, ContextLengthError),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_call(prompt, params, error):
    _, core = make()
    with pytest.raises(error):
        core.submit(prompt, SamplingParams(**params))
    core.submit([1], greedy(1), request_id=7)
    with pytest.raises(SubmitError, match="in use"):
        core.submit([1], greedy(1), request_id=7)
    drain(core)


def test_a_repeated_prompt_is_resumed_and_says_so():
    runner, core = make(cache=CacheSettings(snapshot_every=100))
    prompt = [i % 13 for i in range(18)]
    first = core.submit(prompt, greedy(3))
    events = drain(core)[first]
    assert events[0].cached_tokens == 0
    computed = runner.num_computed_tokens
    second = core.submit(prompt, greedy(3))
    again = drain(core)[second]
    assert tokens(again) == tokens(events)
    assert again[0].cached_tokens == 16
    assert runner.num_computed_tokens - computed == 2 + 2
    assert core.metrics.num_cached_tokens == 16
    # Another tenant's salt sees nothing of it.
    other = core.submit(prompt, greedy(3), RequestOptions(cache_salt="b"))
    assert drain(core)[other][0].cached_tokens == 0
    assert_nothing_leaks(core)


def test_a_conversation_resumes_within_the_earlier_answer():
    _, core = make(cache=CacheSettings(snapshot_every=2, snapshot_last=False))
    prompt = [1, 2, 3, 4, 5]
    first = core.submit(prompt, greedy(14))
    answer = tokens(drain(core)[first])
    second = core.submit([*prompt, *answer, 7], greedy(2))
    events = drain(core)[second]
    assert events[0].cached_tokens == 16
    assert tokens(events) == reference([*prompt, *answer, 7], greedy(2))[0]


def test_two_that_read_the_same_prompt_end_up_sharing_its_blocks():
    _, core = make(FakeRunner(num_blocks=10), max_batch_tokens=32, cache=CacheSettings(snapshot_every=2))
    prompt = [i % 13 for i in range(16)]
    ids = [core.submit([*prompt, last], greedy(3)) for last in (1, 2)]
    core.step()
    # Each has 5 blocks; the first 2 of one and of the other are one and the same.
    assert core.stats().num_free_blocks == 2
    core.step()
    assert core.stats().num_free_blocks == 4
    core.check_integrity()
    found = drain(core)
    for request in ids:
        expected, _ = reference([*prompt, 1 + request], greedy(3))
        assert tokens(found[request]) == expected


def test_preemption_loses_and_redraws_nothing():
    _, core = make(FakeRunner(num_blocks=9), max_batch_tokens=16)
    asked = {}
    for seed in range(3):
        params = SamplingParams(max_tokens=20, seed=seed, temperature=1.3)
        asked[core.submit([seed, 1, 2, 3, 4], params)] = ([seed, 1, 2, 3, 4], params)
    found = drain(core)
    assert core.metrics.num_preemptions > 0
    for request_id, (prompt, params) in asked.items():
        assert tokens(found[request_id]) == reference(prompt, params, num_blocks=9)[0]
    assert_nothing_leaks(core)


def test_the_lowest_priority_and_then_the_latest_is_preempted():
    _, core = make(FakeRunner(num_blocks=9), max_batch_tokens=16, cache=None)
    low, first, late = (
        core.submit([i, 1, 2, 3, 4], greedy(20), RequestOptions(priority=p)) for i, p in enumerate((0, 5, 5))
    )
    order = []
    while core.has_work:
        order += [event.request_id for event in core.step() if event.is_last]
        core.check_integrity()
    assert core.metrics.num_preemptions > 0
    assert order == [first, late, low]


def test_a_preempted_request_resumes_from_the_cache():
    runner, core = make(cache=CacheSettings(snapshot_every=1))
    request = core.submit([1] * 9, greedy(12))
    for _ in range(6):
        core.step()
    assert core.preempt(request)
    assert not core.preempt(request)
    computed = runner.num_computed_tokens
    found = drain(core)[request]
    assert tokens(found) == reference([1] * 9, greedy(12))[0][-len(found) :]
    # Nothing but what came after the last block edge is computed twice.
    assert runner.num_computed_tokens - computed < len(found) + 4


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_a_cancelled_request_is_gone_at_once(steps):
    runner, core = make(cache=None)
    request = core.submit([1] * 17, greedy(20))
    other = core.submit([2, 3], greedy(4))
    for _ in range(steps):
        core.step()
    assert core.cancel(request)
    assert not core.cancel(request)
    core.check_integrity()
    batches = len(runner.batches)
    found = drain(core)
    assert [event.token.finish_reason for event in found[request]] == ["cancelled"]
    assert found[request][0].token.token_id is None
    assert all(s.token_ids[0] != 1 or s.start == 0 for batch in runner.batches[batches:] for s in batch)
    assert other in found or steps == 5
    assert_nothing_leaks(core)


def test_deadlines_end_running_and_waiting_requests():
    clock = Clock()
    _, core = make(FakeRunner(num_slots=1), clock)
    running = core.submit([1], greedy(30), RequestOptions(deadline_s=5))
    waiting = core.submit([2], greedy(30), RequestOptions(deadline_s=2))
    core.step()
    clock.now += 2
    found = core.step()
    assert [(e.request_id, e.token.token_id, e.token.finish_reason) for e in found if e.is_last] == [
        (waiting, None, "deadline")
    ]
    clock.now += 3
    assert [(e.request_id, e.token.index) for e in core.step()] == [(running, 2)]
    assert core.metrics.finished["deadline"] == 2
    assert_nothing_leaks(core)


def admitted_order(core):
    order = []
    while core.has_work:
        for event in core.step():
            if event.token is not None and event.token.index == 0:
                order.append(event.request_id)
    return order


def test_priorities_go_first_and_keys_take_turns():
    _, core = make(FakeRunner(num_slots=1), cache=None)
    options = [("a", 0), ("a", 0), ("a", 0), ("b", 0), ("b", 0), ("c", 3), ("a", 1)]
    for key, priority in options:
        core.submit([1, 2, 3], greedy(2), RequestOptions(fairness_key=key, priority=priority))
    # Key a has paid for its request of priority 1 before any of priority 0 is chosen.
    assert admitted_order(core) == [5, 6, 3, 0, 4, 1, 2]


def test_a_key_with_long_requests_gets_fewer_of_them():
    _, core = make(FakeRunner(num_slots=1, num_blocks=16), cache=None)
    for _ in range(3):
        core.submit([1] * 40, greedy(1), RequestOptions(fairness_key="long"))
    for _ in range(9):
        core.submit([2] * 8, greedy(1), RequestOptions(fairness_key="short"))
    order = admitted_order(core)
    # One long request costs as much as five short ones.
    assert order[:7] == [0, 3, 4, 5, 6, 7, 1]


def test_time_away_is_no_credit():
    _, core = make(FakeRunner(num_slots=1), cache=None)
    for _ in range(4):
        core.submit([1] * 8, greedy(1), RequestOptions(fairness_key="a"))
    while core.metrics.num_generated_tokens < 2:
        core.step()
    for _ in range(3):
        core.submit([1] * 8, greedy(1), RequestOptions(fairness_key="new"))
    # The new key starts level with the old one instead of 16 tokens ahead of it.
    assert admitted_order(core)[:4] in ([2, 4, 3, 5], [4, 2, 5, 3])


def test_age_outranks_priority_so_nobody_starves():
    clock = Clock()
    _, core = make(FakeRunner(num_slots=1), clock, aging_s=10.0, cache=None)
    low = core.submit([1], greedy(1))
    order = []
    for _ in range(60):
        core.submit([2], greedy(1), RequestOptions(priority=3))
        order += [event.request_id for event in core.step()]
        clock.now += 1.0
    assert 25 < order.index(low) < 45


def test_a_large_request_is_not_overtaken_for_ever():
    _, core = make(FakeRunner(num_blocks=8), cache=None)
    core.submit([1] * 4, greedy(8))
    large = core.submit([2] * 25, greedy(2))
    order = []
    for _ in range(40):
        if core.stats().num_waiting < 3:
            core.submit([3] * 4, greedy(4))
        order += [event.request_id for event in core.step() if event.is_last]
    assert order.index(large) <= 2


def test_a_failing_model_ends_the_requests_of_its_batch_and_no_others():
    runner, core = make(FakeRunner(num_slots=2))
    ids = [core.submit([i + 1] * 6, greedy(6)) for i in range(3)]
    core.step()

    def fail(segments):
        runner.before_run = lambda segments: None
        raise OSError("the disk is gone")

    runner.before_run = fail
    found = {event.request_id: event for event in core.step()}
    assert set(found) <= set(ids)
    assert set(found)
    assert all("the disk is gone" in str(e.error) and e.is_last for e in found.values())
    assert len({id(e.error) for e in found.values()}) == len(found)
    core.check_integrity()
    rest = drain(core)
    left = [i for i in ids if i not in found]
    assert left
    for request in left:
        assert tokens(rest[request]) == reference([request + 1] * 6, greedy(6))[0][-len(rest[request]) :]
    assert core.metrics.finished["error"] == len(found)
    assert_nothing_leaks(core)


class NanRunner(FakeRunner):
    def run(self, segments):
        rows = super().run(segments)
        wanted = [s for s in segments if s.want_logits]
        for row, segment in zip(rows, wanted, strict=True):
            if segment.slot == 0:
                row[:] = np.nan
        return rows


def test_nan_logits_end_only_their_own_request():
    _, core = make(NanRunner())
    bad, good = core.submit([1], greedy(3)), core.submit([2], greedy(3))
    found = drain(core)
    assert "NaN" in str(found[bad][-1].error)
    assert tokens(found[good]) == reference([2], greedy(3))[0]
    assert_nothing_leaks(core)


class BrokenMask(BanTokens):
    def advance(self, state, token_id):
        raise KeyError("grammar")


def test_a_broken_mask_ends_only_its_own_request():
    _, core = make()
    bad = core.submit([1], greedy(3, logit_mask=BrokenMask(frozenset({1}))))
    good = core.submit([2], greedy(3))
    found = drain(core)
    assert isinstance(found[bad][-1].error, EngineError)
    assert "grammar" in str(found[bad][-1].error)
    assert len(found[good]) == 3
    assert_nothing_leaks(core)


class WrongShape(FakeRunner):
    def run(self, segments):
        return super().run(segments)[:, 1:]


def test_wrong_logits_are_an_error():
    _, core = make(WrongShape())
    request = core.submit([1], greedy(3))
    assert r"not (1, 13)" in str(drain(core)[request][0].error)
    assert_nothing_leaks(core)


def test_a_failed_snapshot_copy_ends_with_an_error_event_not_a_dead_engine():
    runner, core = make(cache=CacheSettings(snapshot_every=1))
    runner.save_slot = lambda slot: (_ for _ in ()).throw(MemoryError("no room for a state"))
    request = core.submit([1] * 9, greedy(3))
    found = drain(core)[request]
    # Without a place to resume from the answer is the same.
    assert tokens(found) == reference([1] * 9, greedy(3))[0]
    assert_nothing_leaks(core)


def test_fail_all_starts_over():
    runner, core = make()
    ids = [core.submit([1] * 9, greedy(9)) for _ in range(6)]
    for _ in range(4):
        core.step()
    core.fail_all(EngineError("over"))
    assert sorted(e.request_id for e in core.take_events() if e.error) == ids
    assert core.stats().num_free_blocks == runner.num_blocks
    request = core.submit([1] * 9, greedy(9))
    assert tokens(drain(core)[request]) == reference([1] * 9, greedy(9))[0]


def test_the_watermark_leaves_room_to_grow():
    _, core = make(FakeRunner(num_blocks=10), watermark=0.3, cache=None)
    core.submit([1] * 16, greedy(2))
    core.submit([2] * 16, greedy(2))
    core.submit([3] * 4, greedy(2))
    core.step()
    # 4 + 4 of 10 blocks would leave 2, less than the 3 to be kept; nobody overtakes.
    assert (core.stats().num_running, core.stats().num_waiting) == (1, 2)
    drain(core)


def test_metrics_and_stats():
    clock = Clock()
    runner, core = make(FakeRunner(num_slots=1), clock)
    runner.before_run = lambda segments: setattr(clock, "now", clock.now + 1.0)
    core.submit([1] * 4, greedy(3))
    core.submit([2] * 4, greedy(1))
    drain(core)
    metrics = core.metrics
    assert metrics.num_steps == len(runner.batches) == 4
    assert (metrics.num_prompt_tokens, metrics.num_generated_tokens) == (8, 4)
    assert metrics.finished == {"stop": 0, "length": 2, "cancelled": 0, "deadline": 0, "error": 0}
    assert (metrics.ttft_s.record().count, metrics.ttft_s.record().total) == (2, 1.0 + 4.0)
    assert metrics.queue_s.record().total == 3.0
    assert (metrics.tpot_s.record().count, metrics.tpot_s.record().total) == (1, 1.0)
    assert metrics.inter_token_s.record().total == 2.0
    assert metrics.e2e_s.record().total == 3.0 + 4.0
    assert metrics.batch_tokens.record().total == 10
    assert core.stats().batch_tokens == 4


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(SettingsError, match="at least 4"):
        make(max_batch_tokens=3)
    for wrong in ({"max_batch_tokens": 0}, {"max_running": 0}, {"watermark": 1.0}, {"aging_s": 0.0}):
        with pytest.raises(SettingsError):
            EngineSettings(**wrong)
    for wrong in ({"max_bytes": 0}, {"snapshot_every": 0}):
        with pytest.raises(SettingsError):
            CacheSettings(**wrong)
    for wrong in ({"priority": 101}, {"deadline_s": 0.0}, {"deadline_s": float("nan")}):
        with pytest.raises(SubmitError):
            RequestOptions(**wrong)
    with pytest.raises(EngineError, match="0 slots"):
        make(FakeRunner(num_slots=0))


def test_a_budget_of_one_block_still_reads_prompts_beside_decoding():
    _, core = make(max_batch_tokens=6)
    assert core.max_running == 3
    ids = [core.submit([i] * 9, greedy(10)) for i in range(5)]
    found = drain(core)
    assert all(tokens(found[i]) == reference([i] * 9, greedy(10))[0] for i in ids)
