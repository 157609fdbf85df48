"""Decode and prefill of K3-architecture models against llama.cpp, in turns.

The goal of a decode row is 1.5 times llama.cpp, or 90 % of what memory gives in the same minute where that is
less: bytes that a token reads (every weight but the experts it does not choose) against a plain loop's bytes.
"""

import itertools
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import k3_files
import llama_peer
import numpy as np

from gossamer.config.model import ModelConfig
from gossamer.engine.native_runner import NativeRunner, open_folder
from gossamer.engine.runner import Segment
from gossamer.kernels import backend
from gossamer.kernels.network import Precision

ROUNDS = 3
DECODE, START = 48, 16
CHUNK = 512
MOST = 33_000
"""Tokens of the longest sequence that is run."""
READ_BYTES = 1 << 30
EXACT, FAST = Precision(), Precision(activations="int8")
FASTER = Precision(activations="int8", trunk="int8")


class Ours:
    """A runner and the two rates of it."""

    def __init__(self, folder: Path, threads: int, precision: Precision):
        self.runner: NativeRunner = open_folder(
            folder, memory_bytes=1 << 30, max_sequences=1, threads=threads, precision=precision
        )
        self.ids = np.random.default_rng(0).integers(0, self.runner.vocab_size, MOST).tolist()
        self.blocks = list(range(min(self.runner.num_blocks, -(-MOST // self.runner.block_size))))

    def prefill(self, count: int) -> float:
        """Tokens/s of a prompt in chunks of the engine's size."""
        self.runner.clear_slot(0)
        begin = time.perf_counter()
        for at in range(0, count, CHUNK):
            ids = self.ids[at : min(at + CHUNK, count)]
            last = at + CHUNK >= count
            self.runner.run([Segment(token_ids=ids, start=at, slot=0, blocks=self.blocks, want_logits=last)])
        return count / (time.perf_counter() - begin)

    def decode(self, count: int = DECODE) -> float:
        """Tokens/s of one sequence after a few tokens."""
        self.prefill(START)
        return self.decode_from(START, count)

    def decode_from(self, start: int, count: int) -> float:
        """Tokens/s after so many tokens that were read already."""
        begin = time.perf_counter()
        for at in range(start, start + count):
            ids = [self.ids[at]]
            self.runner.run([Segment(token_ids=ids, start=at, slot=0, blocks=self.blocks, want_logits=True)])
        return count / (time.perf_counter() - begin)


def bandwidth(threads: int) -> float:
    """Bytes/s of a plain loop over memory."""
    data = np.zeros(READ_BYTES, np.uint8)
    data[::4096] = 1
    module = backend.load(None)
    return READ_BYTES / min(module.infer.read_through(data, threads) for _ in range(2))


def token_bytes(config: ModelConfig, trunk_bits: float) -> float:
    """Weights that one token reads: experts as MXFP4, the rest at so many bits."""
    from gossamer.config import count

    moe = config.moe
    packed = trunk = 0.0
    for spec in count.tensors(config):
        size = float(np.prod(spec.shape))
        if ".experts." in spec.name:
            packed += size * moe.experts_per_token / moe.num_experts
        elif "embed_tokens" not in spec.name:
            trunk += size * trunk_bits / 8
    return packed + trunk


def alternating(calls: dict, rounds: int = ROUNDS) -> dict:
    """The median of each call's figure, the calls taken in turns."""
    taken = {name: [] for name in calls}
    for _, (name, call) in itertools.product(range(rounds), calls.items()):
        taken[name].append(call())
    return {name: median(found) for name, found in taken.items()}


def decode_rows(folder: Path, files: dict[str, Path], llama: Path) -> list[dict]:
    """One row for each trunk and number of threads."""
    rows = []
    for (kind, bits, modes), threads in itertools.product(
        (("bf16", 16.0, {"exact": EXACT, "int8": FAST}), ("q8_0", 8.5, {"int8": FASTER})), (1, 2)
    ):
        ours = {name: Ours(folder, threads, precision) for name, precision in modes.items()}
        figures = alternating(
            {
                **{name: one.decode for name, one in ours.items()},
                "peer": partial(llama_peer.rate, llama, files[kind], threads, tokens=DECODE),
                "memory": partial(bandwidth, threads),
            }
        )
        reads = token_bytes(ours["int8"].runner.config, bits)
        roof = figures["memory"] / reads
        goal = min(1.5, 0.9 * roof / figures["peer"])
        for name in ours:
            rows.append(
                {
                    "name": f"engine.decode.{kind}.{name}.{threads}t",
                    "ours": figures[name],
                    "peer": figures["peer"],
                    "ratio": figures[name] / figures["peer"],
                    "goal": goal,
                    "unit": "tokens/s",
                    "conditions": f"bench, one sequence, {threads} threads; activations {name}; peer "
                    f"llama.cpp {kind}, int8 activations; a token reads {reads / 1e9:.3f} GB, memory gave "
                    f"{figures['memory'] / 1e9:.1f} GB/s: {100 * figures[name] / roof:.0f} % of the roof; "
                    f"goal 1.5 or 90 % of the roof; median of {ROUNDS} turns of {DECODE} tokens",
                }
            )
    return rows


def prefill_rows(folder: Path, files: dict[str, Path], llama: Path) -> list[dict]:
    """Two lengths, two threads, against the faster of llama.cpp's two files."""
    modes = {"exact": EXACT, "int8": FAST}
    ours = {name: Ours(folder, 2, precision) for name, precision in modes.items()}
    rows = []
    for count in (256, 2048):
        figures = alternating(
            {
                **{name: partial(one.prefill, count) for name, one in ours.items()},
                **{
                    kind: partial(llama_peer.rate, llama, path, 2, prompt=count)
                    for kind, path in files.items()
                },
            },
            rounds=2 if count > 1000 else ROUNDS,
        )
        peer = max(figures[kind] for kind in files)
        rows += [
            {
                "name": f"engine.prefill.{count}.{name}.2t",
                "ours": figures[name],
                "peer": peer,
                "ratio": figures[name] / peer,
                "goal": 4.0,
                "unit": "tokens/s",
                "conditions": f"bench, {count} random tokens, two threads, activations {name}; peer "
                f"the faster "
                f"of llama.cpp's bf16 ({figures['bf16']:.4g}) and q8_0 ({figures['q8_0']:.4g}) files",
            }
            for name in modes
        ]
    return rows


def nano_rows(llama: Path, python: Path) -> list[dict]:
    """nano's weights without indexers, batch 1."""
    folder = k3_files.nano_k3()
    peer = k3_files.gguf(folder, llama, python, "bf16")
    ours = Ours(folder, 1, EXACT)
    figures = alternating(
        {
            "ours": partial(ours.decode, 512),
            "1t": partial(llama_peer.rate, llama, peer, 1, tokens=512),
            "2t": partial(llama_peer.rate, llama, peer, 2, tokens=512),
        },
        rounds=5,
    )
    best = max(figures["1t"], figures["2t"])
    return [
        {
            "name": "engine.decode.nano-k3",
            "ours": figures["ours"],
            "peer": best,
            "ratio": figures["ours"] / best,
            "goal": 1.0,
            "unit": "tokens/s",
            "conditions": f"one sequence, exact, one thread; peer the best of llama.cpp's one "
            f"({figures['1t']:.4g}) and two ({figures['2t']:.4g}) threads; median of 5 turns of 512 tokens",
        }
    ]


def rows() -> list[dict]:
    if not backend.available():
        print("engine: needs the native kernels", file=sys.stderr)
        return []
    llama, python = llama_peer.folder(), llama_peer.converter()
    folder = k3_files.bench()
    plain = k3_files.gguf(folder, llama, python, "bf16")
    files = {"bf16": plain, "q8_0": k3_files.quantised(plain, llama)}
    return [
        *decode_rows(folder, files, llama),
        *prefill_rows(folder, files, llama),
        *nano_rows(llama, python),
    ]
