"""llama.cpp's own programs, built by scripts/oracle_llama, as the peer of engine benchmarks."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "oracle"))

from server_process import ServerProcess  # noqa: E402


def folder() -> Path:
    """Where it was built; builds it if need be (five minutes)."""
    done = subprocess.run([ROOT / "scripts" / "oracle_llama"], check=True, capture_output=True, text=True)
    return ROOT / done.stdout.strip().splitlines()[-1]


def converter() -> Path:
    """The interpreter its converter runs in."""
    command = [ROOT / "scripts" / "oracle_env", "transformers"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return ROOT / done.stdout.strip().splitlines()[-1]


def rate(llama: Path, model: Path, threads: int, *, prompt: int = 0, tokens: int = 0) -> float:
    """Tokens/s of one run of llama-bench, which warms up first."""
    command = [llama / "build" / "bin" / "llama-bench", "-m", model, "-t", str(threads), "-r", "1"]
    command += ["-p", str(prompt), "-n", str(tokens), "-o", "json"]
    done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    (row,) = json.loads(done.stdout)
    return float(row["avg_ts"])


def together(server: ServerProcess, path: str, bodies: list[dict]) -> tuple[float, list[dict]]:
    """All at once; seconds until the last answer, and the answers."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: server.ask(path, body), bodies))
    return time.perf_counter() - begin, answers


def llama_server(llama: Path, model: Path, log: Path, *options: str) -> ServerProcess:
    """Its server; `options` are its own."""
    program = str(llama / "build" / "bin" / "llama-server")
    command = [program, "-m", str(model), "--host", "127.0.0.1", "--port", "PORT", *options]
    return ServerProcess(command, ready="/health", log=log)
