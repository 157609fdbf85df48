"""Random traffic on the native engine for some time; exit code 1 if anything is wrong.

    .venv/bin/python scripts/soak.py --seconds 1800

Requests of all lengths arrive in bursts at an engine whose memory holds few of them, with priorities,
deadlines and sampling of their own; some are cancelled.  Whatever was generated must be, token by token and
with the same log-probabilities, what one request alone generates; the engine's books are checked after every
step; and the process must not grow: its memory in the last third of the time is compared with the first.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from gossamer.checkpoint import CheckpointReader
from gossamer.config import hf, presets
from gossamer.engine.api import EngineError, SamplingParams, TokenEvent
from gossamer.engine.batched import BatchedEngine, QueueFullError
from gossamer.engine.native_runner import NativeRunner, build
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.engine.settings import CacheSettings, EngineSettings, SpillSettings
from gossamer.kernels.network import CacheSize
from gossamer.kernels.random_weights import random_weights
from gossamer.kernels.weights import from_checkpoint, settled
from gossamer.server.load import BUNDLED

SEED = 5
NUM_TEXTS = 6
BLOCK_SIZE = 16
MAX_TOKENS = 120
MAX_LIVE = 16
MAX_QUEUE = 8
# What the process may grow from the first third to the last; less than a request's prompt a minute would be.
GROWTH_SHARE, GROWTH_BYTES = 0.01, 1 << 20
# Memory is taken as it is first touched, so the beginning says nothing about growth.
WARM_UP_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request, and after how many tokens its client leaves; None stays to the end."""

    prompt: list[int]
    params: SamplingParams
    options: RequestOptions
    leave_after: int | None


class Wrong(Exception):
    """Something that must not happen."""


def build_runner(model: str, *, blocks: int, slots: int, threads: int) -> NativeRunner:
    """The named model over caches for so many blocks and sequences."""
    cache = CacheSize(block_size=BLOCK_SIZE, num_blocks=blocks, num_slots=slots)
    if model == "debug":
        config = presets.load("debug")
        return build(config, random_weights(config, 1), cache=cache, threads=threads)
    folder = BUNDLED / model if model == "nano" else Path(model)
    with CheckpointReader.open(folder) as reader:
        config = settled(hf.read(folder), reader)
        return build(config, from_checkpoint(config, reader), cache=cache, threads=threads)


class Traffic:
    """What arrives, from one seed."""

    def __init__(self, seed: int, vocab_size: int, max_context: int):
        self.rng = random.Random(seed)
        self.vocab_size, self.max_context = vocab_size, max_context
        self.texts = [self.tokens(max_context) for _ in range(NUM_TEXTS)]

    def tokens(self, count: int) -> list[int]:
        return [self.rng.randrange(self.vocab_size) for _ in range(count)]

    def pause_s(self) -> float:
        """To the next arrival: bursts, and now and then a silence in which the engine runs dry."""
        return self.rng.choice([0.0, 0.0, 0.0, 0.02, 0.1, 0.3]) if self.rng.random() < 0.98 else 3.0

    def ask(self) -> Ask:
        rng = self.rng
        room = self.max_context - MAX_TOKENS - 8
        short, long = rng.randint(1, 40), rng.randint(room // 3, room)
        length = rng.choice([short] * 4 + [rng.randint(40, room // 3)] * 3 + [long])
        tail = self.tokens(rng.randint(1, 8))
        max_tokens = rng.randint(1, MAX_TOKENS)
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=rng.choice([0.0, 0.8, 2.0]),
            top_p=rng.choice([1.0, 0.9]),
            frequency_penalty=rng.choice([0.0, 0.0, 0.7]),
            seed=rng.choice([None, 0, 1, 2]),
            logprobs=rng.choice([None, None, 2]),
            stop_token_ids=frozenset(self.tokens(rng.choice([0, 0, 20]))),
        )
        options = RequestOptions(
            priority=rng.randint(-2, 2),
            deadline_s=rng.choice([None] * 6 + [rng.uniform(0.05, 3.0)]),
            fairness_key=rng.choice("abc"),
            cache_salt=rng.choice(["", "", "", "other"]),
        )
        leave = rng.randint(0, max_tokens) if rng.random() < 0.12 else None
        prompt = rng.choice(self.texts)[:length] + tail
        return Ask(prompt=prompt, params=params, options=options, leave_after=leave)


class Soak:
    """One engine under traffic."""

    def __init__(self, runner, reference, settings: EngineSettings, seed: int):
        self.engine = BatchedEngine(runner, settings, max_queue=MAX_QUEUE)
        self.reference = reference
        self.traffic = Traffic(seed, runner.vocab_size, min(runner.max_context, reference.max_context))
        # A reference has one sequence's memory and one user.
        self.judge = ThreadPoolExecutor(1)
        self.counts: Counter[str] = Counter()
        self.longest_prompt = 0
        self.memory: list[tuple[float, int]] = []
        self.check_every_step()

    def check_every_step(self) -> None:
        """The books are the worker's: only between its steps do they have to agree."""
        core = self.engine._core
        step = core.step

        def checked():
            events = step()
            core.check_integrity()
            self.counts["steps"] += 1
            return events

        core.step = checked

    async def run(self, seconds: float) -> None:
        begin = time.monotonic()
        live: set[asyncio.Task] = set()
        next_sample = begin
        while (now := time.monotonic()) < begin + seconds:
            if now >= next_sample:
                self.memory.append((now - begin, resident_bytes()))
                next_sample += max(seconds / 900, 0.1)
            if len(live) < MAX_LIVE:
                live.add(asyncio.create_task(self.client(self.traffic.ask())))
            await asyncio.sleep(self.traffic.pause_s() if len(live) < MAX_LIVE else 0.02)
            done = {task for task in live if task.done()}
            live -= done
            for task in done:
                task.result()
        await asyncio.gather(*live)
        core = self.engine._core
        core.check_integrity()
        stats = core.stats()
        if stats.num_free_blocks + stats.cache_blocks != stats.num_blocks:
            raise Wrong(f"blocks were lost: {stats}")
        await self.engine.close()

    async def client(self, ask: Ask) -> None:
        try:
            stream = self.engine.submit(ask.prompt, ask.params, ask.options)
        except QueueFullError:
            self.counts["turned_away"] += 1
            return
        got: list[TokenEvent] = []
        if ask.leave_after == 0:
            await stream.aclose()
        else:
            async for event in stream:
                got.append(event)
                if ask.leave_after == len(got) and event.finish_reason is None:
                    await stream.aclose()
                    break
        ended = got[-1].finish_reason if got else None
        self.counts[ended or "cancelled"] += 1
        self.counts["requests"] += 1
        self.longest_prompt = max(self.longest_prompt, len(ask.prompt))
        await asyncio.get_running_loop().run_in_executor(self.judge, self.compare, ask, got)

    def compare(self, ask: Ask, got: list[TokenEvent]) -> None:
        """Completed answers as a whole; of the others what there is of them."""
        if got and got[-1].finish_reason in ("stop", "length"):
            want = generate(self.reference, ask.prompt, ask.params, default_seed=SEED)
            self.counts["compared_whole"] += 1
        else:
            got = [event for event in got if event.token_id is not None]
            if not got:
                return
            short = replace(ask.params, max_tokens=len(got))
            want = generate(self.reference, ask.prompt, short, default_seed=SEED)
            want[-1] = replace(want[-1], finish_reason=None)
            self.counts["compared_in_part"] += 1
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), len(want))
            raise Wrong(
                f"token {at} of {len(want)} after {len(ask.prompt)} tokens of prompt differs from one alone: "
                f"{got[at : at + 1]} for {want[at : at + 1]}, {ask.params}, {ask.options}"
            )
        self.counts["tokens_compared"] += len(want)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(memory: list[tuple[float, int]]) -> dict[str, float | list[float]]:
    """Mean memory of the first and of the last third after the warm-up, and the slope of a straight line."""
    points = memory[int(len(memory) * WARM_UP_SHARE) :]
    third = len(points) // 3
    if third == 0:
        raise Wrong("too short to see whether memory grows")
    first, last = (fmean(size for _, size in part) for part in (points[:third], points[-third:]))
    mid_s, mid = fmean(s for s, _ in points), fmean(size for _, size in points)
    spread = sum((s - mid_s) ** 2 for s, _ in points)
    slope = sum((s - mid_s) * (size - mid) for s, size in points) / spread
    return {
        "rss_first_third_mib": round(first / 2**20, 2),
        "rss_last_third_mib": round(last / 2**20, 2),
        "rss_slope_mib_per_hour": round(slope * 3600 / 2**20, 3),
        # A step tells itself from a slope.
        "rss_mib": [round(size / 2**20, 1) for _, size in memory[:: max(1, len(memory) // 24)]],
        "grew": last - first > max(GROWTH_BYTES, GROWTH_SHARE * first),
    }


def report(soak: Soak, options: argparse.Namespace, taken_s: float) -> dict:
    metrics = soak.engine.metrics
    return {
        "basis": "measured",
        "model": options.model,
        "seconds": round(taken_s, 1),
        "seed": options.seed,
        "blocks": options.blocks,
        "slots": options.slots,
        **dict(sorted(soak.counts.items())),
        "longest_prompt": soak.longest_prompt,
        "prompt_tokens": metrics.num_prompt_tokens,
        "generated_tokens": metrics.num_generated_tokens,
        "cached_tokens": metrics.num_cached_tokens,
        "preemptions": metrics.num_preemptions,
        "evictions": metrics.num_evictions,
        **growth(soak.memory),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--model", default="nano", help="nano, debug (random weights), or a folder")
    parser.add_argument("--seed", type=int, default=0, help="of the traffic")
    parser.add_argument(
        "--blocks", type=int, default=100, help=f"of {BLOCK_SIZE} tokens, for all sequences together"
    )
    parser.add_argument("--slots", type=int, default=6, help="sequences at a time")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runner = build_runner(
            options.model, blocks=options.blocks, slots=options.slots, threads=options.threads
        )
        state = runner.slot_bytes + runner.block_bytes
        spill = SpillSettings(directory=Path(folder), max_bytes=20 * state, fingerprint="soak")
        cache = CacheSettings(snapshot_every=4, max_bytes=8 * state, spill=spill)
        settings = EngineSettings(max_batch_tokens=96, aging_s=2.0, cache=cache, seed=SEED)
        alone = build_runner(options.model, blocks=options.blocks, slots=1, threads=1)
        soak = Soak(runner, alone, settings, options.seed)
        begin = time.monotonic()
        try:
            asyncio.run(soak.run(options.seconds))
            found = report(soak, options, time.monotonic() - begin)
        except (Wrong, EngineError, AssertionError) as error:
            print(f"soak failed after {time.monotonic() - begin:.0f} s: {error!r}", file=sys.stderr)
            os._exit(1)  # the engine's worker and clients are still at it
    print(json.dumps(found, indent=2))
    return int(found["grew"] and options.seconds >= 300)


if __name__ == "__main__":
    sys.exit(main())
