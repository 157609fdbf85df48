"""How long the commands that must feel instant take to start, against the bar of 150 ms."""

import subprocess
import sys
import time
from pathlib import Path

GOSSAMER = Path(sys.executable).parent / "gossamer"
BAR_MS = 150.0
COMMANDS = {"help": ["--help"], "info": ["info"], "inspect": ["inspect", "k3.1-pro"]}


def median_ms(command: list[str], runs: int = 11) -> float:
    taken = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append((time.perf_counter() - begin) * 1e3)
    return sorted(taken[1:])[runs // 2]


def rows() -> list[dict]:
    bare = median_ms([sys.executable, "-c", "pass"])
    found = []
    for name, arguments in COMMANDS.items():
        ours = median_ms([str(GOSSAMER), *arguments])
        found.append(
            {
                "name": f"startup.{name}",
                "ours": ours,
                "peer": BAR_MS,
                "ratio": BAR_MS / ours,
                "goal": 1.0,
                "unit": "ms",
                "conditions": f"whole process, median of 11; peer is the bar; bare python {bare:.0f} ms",
            }
        )
    return found
