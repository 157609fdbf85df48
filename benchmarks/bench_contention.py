"""Decoding with two threads while another process keeps one of their two cores busy.

A pool that waits for the thread without a core falls far below the speed of one thread; it may lose no more
than a fifth of it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

from gossamer.config import presets
from gossamer.config.model import ModelConfig
from gossamer.engine.native_runner import NativeRunner, build
from gossamer.engine.runner import Segment
from gossamer.kernels.network import CacheSize
from gossamer.kernels.random_weights import random_weights

GOAL = 0.8
ROUNDS = 7
SECONDS = 1.5
PROMPT = 16
Case = tuple[int, bool]
"""Threads, and whether a core is stolen."""
CASES: tuple[Case, ...] = ((1, False), (2, False), (2, True))

HOG = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
print("busy", flush=True)
while True:
    pass
"""


def middle_sized() -> ModelConfig:
    """Some 150 MB of weights in nano's arrangement: enough for two threads, and made up at once."""
    config = presets.load("nano")
    moe = replace(config.moe, num_experts=32, intermediate_size=512, latent_size=512)
    kda = replace(config.kda, num_heads=8, head_dim=128)
    return replace(config, hidden_size=1024, intermediate_size=3072, moe=moe, kda=kda, name="middle")


@contextmanager
def stolen(core: int) -> Iterator[None]:
    """Another process that never rests, on one core."""
    hog = subprocess.Popen([sys.executable, "-c", HOG, str(core)], stdout=subprocess.PIPE)
    try:
        assert hog.stdout is not None
        hog.stdout.readline()
        yield
    finally:
        hog.kill()
        hog.wait()
        hog.stdout.close()


def decode_rate(runner: NativeRunner, seconds: float) -> float:
    """Tokens/s of one sequence."""
    blocks = range(runner.num_blocks)
    runner.clear_slot(0)
    prompt = [i % runner.vocab_size for i in range(PROMPT)]
    runner.run([Segment(token_ids=prompt, start=0, slot=0, blocks=blocks, want_logits=True)])
    at, begin = PROMPT, time.perf_counter()
    while (taken := time.perf_counter() - begin) < seconds and at < runner.max_context:
        runner.run([Segment(token_ids=[at % 97], start=at, slot=0, blocks=blocks, want_logits=True)])
        at += 1
    return (at - PROMPT) / taken


def rows(make: Callable[[int], NativeRunner] | None = None, name: str = "middle") -> list[dict]:
    """One row; none where there are no two cores to share.

    Args:
        make: A runner of so many threads; None takes a made-up model of some 150 MB.
        name: Of the model, for the row.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("contention: needs two cores", file=sys.stderr)
        return []
    if make is None:
        config = middle_sized()
        weights = list(random_weights(config, 1))
        cache = CacheSize(num_blocks=64, num_slots=1)

        def make(threads: int) -> NativeRunner:
            return build(config, weights, cache=cache, threads=threads)

    before = os.sched_getaffinity(0)
    # Threads inherit it: on more cores the scheduler would simply move the thread away from the busy one.
    os.sched_setaffinity(0, cores)
    try:
        runners = {threads: make(threads) for threads in (1, 2)}
        taken: dict[Case, list[float]] = {case: [] for case in CASES}
        for _ in range(ROUNDS):
            for threads, is_stolen in CASES:
                runner = runners[threads]
                if is_stolen:
                    with stolen(cores[1]):
                        rate = decode_rate(runner, SECONDS)
                else:
                    rate = decode_rate(runner, SECONDS)
                taken[threads, is_stolen].append(rate)
    finally:
        os.sched_setaffinity(0, before)
    one, two, contended = (median(taken[case]) for case in CASES)
    return [
        {
            "name": f"contention.{name}.decode",
            "ours": contended,
            "peer": one,
            "ratio": contended / one,
            "goal": GOAL,
            "unit": "tokens/s",
            "conditions": "two threads on two cores, one of them kept busy by another process; peer is one "
            f"thread with both cores free; two threads undisturbed {two:.4g}; median of {ROUNDS} alternating "
            f"rounds of {SECONDS:g} s",
        }
    ]
