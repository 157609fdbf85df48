"""MX encode and decode per thread, native and numpy, against torchao, on the same Gaussian matrix.

Native rows are to be 20 times torchao, or as fast as memory where that is less: what a copy of arrays too
large for the caches moves in the same minute, reads and writes counted once each, divided by the bytes of an
element and its code.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np

from gossamer import mx
from gossamer.kernels import backend, codec

ROOT = Path(__file__).resolve().parents[1]
ORACLE = Path(os.environ.get("ORACLE_HOME", ROOT / ".oracle")) / "mx" / "bin" / "python"
SHAPE = (1024, 4096)
RUNS = 7
ROUNDS = 3
GOAL = 20.0
COPY_BYTES = 256 << 20
BYTES_PER_ELEMENT = {"mxfp4": 4 + 1 / 2 + 1 / 32, "mxfp8_e4m3": 4 + 1 + 1 / 32}


def best_rate(call, amount: int) -> float:
    """Per second, of the fastest run: noise only ever adds time."""
    call()
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return amount / min(taken)


def calls() -> dict[tuple[str, str, str], object]:
    """What is measured, by format, direction and way; mxfp4 packed, as torchao has it."""
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    small, wide = codec.encode4(x, "even"), codec.encode(x, "mxfp8_e4m3", "even")
    loose = mx.encode(x, "mxfp4", "even")
    return {
        ("mxfp4", "encode", "native"): lambda: codec.encode4(x, "even"),
        ("mxfp4", "decode", "native"): lambda: codec.decode4(small.packed, small.scales),
        ("mxfp8_e4m3", "encode", "native"): lambda: codec.encode(x, "mxfp8_e4m3", "even"),
        ("mxfp8_e4m3", "decode", "native"): lambda: codec.decode(wide.codes, wide.scales, "mxfp8_e4m3"),
        ("mxfp4", "encode", "numpy"): lambda: mx.encode(x, "mxfp4", "even"),
        ("mxfp4", "decode", "numpy"): lambda: mx.decode(loose.codes, loose.scales, "mxfp4"),
        ("mxfp8_e4m3", "encode", "numpy"): lambda: mx.encode(x, "mxfp8_e4m3", "even"),
        ("mxfp8_e4m3", "decode", "numpy"): lambda: mx.decode(wide.codes, wide.scales, "mxfp8_e4m3"),
    }


def torchao() -> dict[str, dict[str, float]]:
    command = [str(ORACLE), str(ROOT / "benchmarks" / "peer_torchao.py"), *map(str, SHAPE), str(RUNS)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure() -> tuple[dict[tuple[str, str, str], float], dict[tuple[str, str], float], float]:
    """Elements/s of ours and of torchao, bytes/s of a copy; the best of alternating rounds."""
    ours: dict[tuple[str, str, str], float] = {}
    peer: dict[tuple[str, str], float] = {}
    bandwidth = 0.0
    source, target = np.ones(COPY_BYTES, np.uint8), np.zeros(COPY_BYTES, np.uint8)
    for _ in range(ROUNDS):
        for fmt, rates in torchao().items():
            for call, rate in rates.items():
                peer[fmt, call] = max(peer.get((fmt, call), 0.0), rate)
        bandwidth = max(bandwidth, best_rate(lambda: np.copyto(target, source), 2 * COPY_BYTES))
        for what, call in calls().items():
            ours[what] = max(ours.get(what, 0.0), best_rate(call, SHAPE[0] * SHAPE[1]))
    return ours, peer, bandwidth


def rows() -> list[dict]:
    ours, peer, bandwidth = measure()
    found = []
    for (fmt, call, way), rate in ours.items():
        ratio = rate / peer[fmt, call]
        limit = bandwidth / BYTES_PER_ELEMENT[fmt]
        goal, said = GOAL, "20 x torchao"
        if limit < GOAL * peer[fmt, call]:
            goal, said = limit / peer[fmt, call], "memory bandwidth"
        kind = backend.available()[0] if way == "native" else way
        conditions = (
            f"{kind}, one thread, float32 {SHAPE[0]}x{SHAPE[1]}, EVEN, best of {ROUNDS} rounds of {RUNS} "
            f"alternating with torchao 0.18.0; a copy in the same rounds {bandwidth / 1e9:.1f} GB/s, "
            f"which is {limit / 1e6:.0f} M elements/s"
        )
        found.append(
            {
                "name": f"mx.{fmt}.{call}" + (".numpy" if way == "numpy" else ""),
                "ours": rate / 1e6,
                "peer": peer[fmt, call] / 1e6,
                "ratio": ratio,
                "goal": goal if way == "native" else None,
                "unit": "M elements/s",
                "conditions": conditions + (f"; goal: {said}" if way == "native" else ""),
            }
        )
    return found
