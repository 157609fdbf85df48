"""MX encode and decode per thread, ours (numpy) against torchao, on the same Gaussian matrix."""

import json
import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ORACLE = Path(os.environ.get("ORACLE_HOME", ROOT / ".oracle")) / "mx" / "bin" / "python"
SHAPE = (1024, 4096)
RUNS = 7
# Native kernels are to be 20 times torchao; the numpy path must at least not be slower than it.
GOAL = 1.0


def best_rate(call, elements: int) -> float:
    call()
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return elements / min(taken)


def ours() -> dict[str, dict[str, float]]:
    import numpy as np

    from gossamer import mx

    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    found = {}
    for fmt in ("mxfp4", "mxfp8_e4m3"):
        encoded = mx.encode(x, fmt, "even")
        found[fmt] = {
            "encode": best_rate(lambda fmt=fmt: mx.encode(x, fmt, "even"), x.size),
            "decode": best_rate(lambda e=encoded, fmt=fmt: mx.decode(e.codes, e.scales, fmt), x.size),
        }
    return found


def rows() -> list[dict]:
    command = [str(ORACLE), str(ROOT / "benchmarks" / "peer_torchao.py"), *map(str, SHAPE), str(RUNS)]
    peer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    mine = ours()
    return [
        {
            "name": f"mx.{fmt}.{call}",
            "ours": mine[fmt][call] / 1e6,
            "peer": peer[fmt][call] / 1e6,
            "ratio": mine[fmt][call] / peer[fmt][call],
            "goal": GOAL,
            "unit": "M elements/s",
            "conditions": f"one thread, float32 {SHAPE[0]}x{SHAPE[1]}, EVEN, best of {RUNS}; torchao 0.18.0",
        }
        for fmt in mine
        for call in mine[fmt]
    ]
