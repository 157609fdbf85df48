"""The asyncio facade: clients that leave, models that fail, queues that fill, engines that come back."""

import asyncio
import gc
import logging
import threading
import time
from contextlib import aclosing

import pytest

from gossamer.engine.api import ContextLengthError, EngineError, SamplingParams, SubmitError
from gossamer.engine.batched import BatchedEngine, QueueFullError
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.engine.settings import CacheSettings, EngineSettings, SettingsError, SpillSettings

from .fake_runner import FakeRunner


class GatedRunner(FakeRunner):
    """Once shut, waits in every forward pass until it is let through."""

    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.turns = threading.Semaphore(10**6)
        self.num_entered = 0
        self.failure = None
        self.before_run = self.wait_for_turn

    def wait_for_turn(self, segments):
        self.num_entered += 1
        assert self.turns.acquire(timeout=30)
        if self.failure is not None:
            raise self.failure

    def shut(self):
        self.turns = threading.Semaphore(0)

    def let(self, num_passes=10**6):
        self.turns.release(num_passes)

    async def entered(self, num_passes=1):
        await until(lambda: self.num_entered >= num_passes)


def greedy(max_tokens=5, **params):
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, **params)


def make(runner=None, *, max_queue=None, clock=time.monotonic, **settings):
    runner = runner or GatedRunner()
    chosen = EngineSettings(**{"max_batch_tokens": 8, "watermark": 0.0, "seed": 1, **settings})
    return runner, BatchedEngine(runner, chosen, max_queue=max_queue, clock=clock)


async def collect(engine, prompt, params=None, options=None):
    stream = engine.submit(prompt, params or greedy(), options or RequestOptions())
    async with aclosing(stream):
        return [event async for event in stream]


def reference(prompt, params=None):
    return generate(FakeRunner(), prompt, params or greedy(), default_seed=1)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), timeout=60))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def closed(engine):
    """Close, and check that everything was given back."""
    await engine.close()
    core = engine._core
    core.check_integrity()
    stats = engine.stats
    assert (stats.num_running, stats.num_waiting) == (0, 0)
    assert stats.num_free_blocks + stats.cache_blocks == stats.num_blocks
    assert not engine._channels
    assert not engine._worker.is_alive()


def test_many_at_once_equal_one_at_a_time():
    async def scenario():
        runner, engine = make()
        prompts = [[i, 2, 3, *range(i)] for i in range(9)]
        params = [SamplingParams(max_tokens=4 + i, seed=i, logprobs=1) for i in range(9)]
        pairs = list(zip(prompts, params, strict=True))
        got = await asyncio.gather(*(collect(engine, prompt, p) for prompt, p in pairs))
        assert got == [reference(prompt, p) for prompt, p in pairs]
        assert max(len(batch) for batch in runner.batches) > 1
        await closed(engine)

    run(scenario)


@pytest.mark.parametrize(
    ("prompt", "params", "error"),
    [([], {}, SubmitError), ([13], {}, SubmitError), ([1] * 60, {"max_tokens": 5}, ContextLengthError)],
)
def test_what_cannot_be_served_is_refused_at_the_call(prompt, params, error):
    async def scenario():
        runner, engine = make()
        with pytest.raises(error):
            engine.submit(prompt, SamplingParams(**params))
        assert engine.max_context == 64
        await closed(engine)
        assert not runner.batches

    run(scenario)


async def leave(stream, how):
    match how:
        case "close":
            await stream.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        case "throw":
            with pytest.raises(KeyError, match="mine"):
                await stream.athrow(KeyError("mine"))
        case "type":
            with pytest.raises(KeyError):
                await stream.athrow(KeyError)


@pytest.mark.parametrize("how", ["close", "throw", "type", "drop"])
def test_leaving_the_stream_ends_the_work_within_a_step(how):
    async def scenario():
        runner, engine = make()
        runner.shut()
        stream = engine.submit([1], greedy(60))
        runner.let(1)
        assert (await anext(stream)).index == 0
        await runner.entered(2)
        await leave(stream, how)
        del stream
        gc.collect()
        runner.let()
        await until(lambda: not engine._channels)
        # The step that was running ended; no further one began.
        assert len(runner.batches) == 2
        assert engine.metrics.finished["cancelled"] == 1
        await closed(engine)

    run(scenario)


def test_cancelling_the_waiting_task_ends_the_request():
    async def scenario():
        runner, engine = make()
        runner.shut()
        task = asyncio.create_task(collect(engine, [1], greedy(60)))
        await runner.entered()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        runner.let()
        await until(lambda: not engine._channels)
        assert len(runner.batches) == 1
        await closed(engine)

    run(scenario)


def test_a_waiting_request_that_leaves_never_runs():
    async def scenario():
        runner, engine = make(GatedRunner(num_slots=1))
        runner.shut()
        first = asyncio.create_task(collect(engine, [1]))
        await runner.entered()
        second = engine.submit([2], greedy())
        third = asyncio.create_task(collect(engine, [3]))
        await second.aclose()
        runner.let()
        assert await first == reference([1])
        assert await third == reference([3])
        assert not any(s.token_ids == [2] and s.start == 0 for batch in runner.batches for s in batch)
        await closed(engine)

    run(scenario)


def test_closing_ends_running_and_waiting_requests_with_an_event():
    async def scenario():
        runner, engine = make(GatedRunner(num_slots=1))
        runner.shut()
        tasks = [asyncio.create_task(collect(engine, [1], greedy(40))) for _ in range(3)]
        await runner.entered()
        closing = asyncio.create_task(engine.close())
        await until(lambda: engine._closed)
        late = engine.submit([1], greedy())
        runner.let()
        await closing
        for events in await asyncio.gather(*tasks):
            assert (events[-1].token_id, events[-1].finish_reason) == (None, "cancelled")
        assert [event.finish_reason async for event in late] == ["cancelled"]
        await closed(engine)

    run(scenario)


def test_a_failing_model_ends_its_requests_and_serves_the_next():
    async def scenario():
        runner, engine = make()
        runner.shut()
        tasks = [asyncio.create_task(collect(engine, [i + 1, 2], greedy(30))) for i in range(3)]
        await until(lambda: len(engine._channels) == 3)
        # The first pass may have begun with one request; all three are in the second, which fails.
        runner.let(1)
        await runner.entered(2)
        runner.failure = OSError("the disk is gone")
        runner.let()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in done] == [EngineError] * 3
        assert all("the disk is gone" in str(error) for error in done)
        assert isinstance(done[0].__cause__, OSError)
        runner.failure = None
        assert await collect(engine, [4, 5]) == reference([4, 5])
        assert engine.metrics.finished["error"] == 3
        await closed(engine)

    run(scenario)


def test_a_fault_of_the_engine_itself_ends_all_requests_and_serves_the_next(monkeypatch, caplog):
    async def scenario():
        runner, engine = make()
        runner.shut()
        task = asyncio.create_task(collect(engine, [1, 2], greedy(30)))
        await runner.entered()
        with monkeypatch.context() as patch:
            patch.setattr(engine._core._scheduler, "schedule", lambda now: 1 / 0)
            runner.let()
            with pytest.raises(EngineError, match="ZeroDivisionError"):
                await task
        assert await collect(engine, [4, 5]) == reference([4, 5])
        await closed(engine)

    run(scenario)
    assert "a step of the engine failed" in caplog.text


class BrokenStart:
    def start(self):
        raise KeyError("no grammar")


def test_a_mask_that_cannot_start_is_its_own_requests_error():
    async def scenario():
        _, engine = make()
        with pytest.raises(EngineError, match="no grammar"):
            await collect(engine, [1], greedy(logit_mask=BrokenStart()))
        assert await collect(engine, [4, 5]) == reference([4, 5])
        await closed(engine)

    run(scenario)


def test_a_worker_that_dies_leaves_nobody_waiting(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    async def scenario():
        runner, engine = make()

        def leave(segments):
            raise SystemExit

        runner.before_run = leave
        with pytest.raises(EngineError, match="worker thread has ended"):
            await collect(engine, [1])
        assert [event.finish_reason for event in await collect(engine, [1])] == ["cancelled"]
        await engine.close()

    run(scenario)


def test_deadlines():
    async def scenario():
        runner, engine = make(GatedRunner(num_slots=1), clock=lambda: now[0])
        runner.shut()
        tasks = [
            asyncio.create_task(collect(engine, [1], greedy(50), RequestOptions(deadline_s=deadline)))
            for deadline in (5.0, 4.0, None)
        ]
        await runner.entered()
        now[0] = 6.0
        runner.let()
        running, waiting, other = await asyncio.gather(*tasks)
        assert [event.finish_reason for event in running] == [None, "deadline"]
        assert [(event.token_id, event.finish_reason) for event in waiting] == [(None, "deadline")]
        assert other == reference([1], greedy(50))
        await closed(engine)

    now = [0.0]
    run(scenario)


def test_priority_and_fairness_reach_the_queue():
    async def scenario():
        runner, engine = make(GatedRunner(num_slots=1), cache=None)
        runner.shut()
        order = []

        async def one(name, options):
            await collect(engine, [name], greedy(2), options)
            order.append(name)

        asked = [(1, "a", 0), (2, "a", 0), (3, "a", 0), (4, "b", 0), (5, "a", 1)]
        tasks = []
        for name, key, priority in asked:
            options = RequestOptions(fairness_key=key, priority=priority)
            tasks.append(asyncio.create_task(one(name, options)))
            await runner.entered()
            await asyncio.sleep(0)
        runner.let()
        await asyncio.gather(*tasks)
        assert order == [1, 5, 4, 2, 3]
        await closed(engine)

    run(scenario)


def test_a_full_queue_refuses_and_takes_again_later():
    async def scenario():
        runner, engine = make(GatedRunner(num_slots=2), max_queue=1)
        runner.shut()
        tasks = [asyncio.create_task(collect(engine, [i])) for i in range(3)]
        await runner.entered()
        await until(lambda: len(engine._channels) == 3)
        with pytest.raises(QueueFullError, match="1 request") as refused:
            engine.submit([1], greedy())
        assert (refused.value.max_queue, isinstance(refused.value, SubmitError)) == (1, True)
        runner.let()
        await asyncio.gather(*tasks)
        assert await collect(engine, [1]) == reference([1])
        await closed(engine)

    run(scenario)
    with pytest.raises(SettingsError, match="max_queue"):
        make(max_queue=-1)


def test_cached_tokens_are_reported():
    async def scenario():
        _, engine = make()
        prompt = [i % 13 for i in range(18)]
        found = []
        for _ in range(2):
            stream = engine.submit(prompt, greedy())
            assert [event async for event in stream] == reference(prompt)
            found.append(stream.cached_tokens)
        assert found == [0, 16]
        assert engine.stats.cache_hit_tokens == 16
        await closed(engine)

    run(scenario)


def spilling(folder, max_bytes=100_000):
    spill = SpillSettings(directory=folder, max_bytes=max_bytes, fingerprint="fake")
    return {"cache": CacheSettings(snapshot_every=2, spill=spill)}


async def ask_twice(folder, between):
    """The same prompt before and after a restart; returns what the second found cached."""
    prompt = [i % 13 for i in range(18)]
    for round_ in range(2):
        _, engine = make(**spilling(folder))
        stream = engine.submit(prompt, greedy())
        assert [event async for event in stream] == reference(prompt)
        await closed(engine)
        if round_ == 0:
            assert stream.cached_tokens == 0
            between()
    return stream.cached_tokens


def test_a_restart_finds_what_was_spilled(tmp_path):
    assert run(lambda: ask_twice(tmp_path, lambda: None)) == 16


def test_damaged_spill_files_cost_nothing_but_time(tmp_path, caplog):
    def harm():
        for path in tmp_path.iterdir():
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)

    assert run(lambda: ask_twice(tmp_path, harm)) == 0
    assert "is damaged" in caplog.text


def test_a_full_disk_does_not_break_serving(tmp_path, monkeypatch, caplog):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with caplog.at_level(logging.WARNING):
        assert run(lambda: ask_twice(tmp_path, lambda: None)) == 0
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.iterdir())


class NoBlockIO:
    """A runner without read_block and write_block."""

    def __init__(self):
        self._runner = FakeRunner()

    def __getattr__(self, name):
        if name in ("read_block", "write_block"):
            raise AttributeError(name)
        return getattr(self._runner, name)


def test_a_spill_needs_a_runner_that_can_copy_blocks(tmp_path):
    with pytest.raises(SettingsError, match="NoBlockIO lacks read_block"):
        make(NoBlockIO(), **spilling(tmp_path))


def test_an_idle_engine_waits_without_stepping():
    async def scenario():
        _, engine = make()
        await collect(engine, [1])
        steps = []
        step = engine._core.step
        engine._core.step = lambda: steps.append(None) or step()
        obeyed = []
        obey = engine._obey
        engine._obey = lambda: obeyed.append(None) or obey()
        await asyncio.sleep(0.05)
        # The worker sits in the call of _obey that it was in before, or was about to make.
        assert (steps, obeyed[1:]) == ([], [])
        assert await collect(engine, [2], greedy(1)) == reference([2], greedy(1))
        assert (len(steps), obeyed[3:]) == (1, [])
        await closed(engine)

    run(scenario)


def test_streams_of_several_event_loops():
    _, engine = make()
    found = {}

    def client(name):
        found[name] = asyncio.run(collect(engine, [name, 1], greedy(20)))

    threads = [threading.Thread(target=client, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == {name: reference([name, 1], greedy(20)) for name in range(4)}
    asyncio.run(closed(engine))


def test_a_second_reader_of_one_stream_is_refused():
    async def scenario():
        runner, engine = make()
        runner.shut()
        stream = engine.submit([1], greedy(2))
        reader = asyncio.create_task(anext(stream))
        await runner.entered()
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already waiting"):
            await anext(stream)
        runner.let()
        # The first reader is unharmed.
        assert [await reader, await anext(stream)] == reference([1], greedy(2))
        await closed(engine)

    run(scenario)


def test_metrics_of_a_request():
    async def scenario():
        _, engine = make()
        await collect(engine, [1, 2, 3], greedy(4))
        metrics = engine.metrics
        assert (metrics.num_prompt_tokens, metrics.num_generated_tokens) == (3, 4)
        for histogram, count in (
            (metrics.ttft_s, 1),
            (metrics.queue_s, 1),
            (metrics.tpot_s, 1),
            (metrics.inter_token_s, 3),
            (metrics.e2e_s, 1),
        ):
            assert histogram.record().count == count
            assert histogram.record().total >= 0
        await closed(engine)

    run(scenario)
