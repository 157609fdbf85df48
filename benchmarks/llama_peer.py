"""llama.cpp's own programs, built by scripts/oracle_llama, as the peer of engine benchmarks."""

import json
import os
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START_S = 120.0


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


class Server:
    """Any server that answers /health and an OpenAI path, as a process; a context manager.

    Attributes:
        seconds_to_ready: From the start of the process to the first successful answer of `ready`.
    """

    def __init__(self, command: list[str], *, ready: str, log: Path) -> None:
        self.command, self.ready, self.log = command, ready, log

    def __enter__(self) -> "Server":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        begin = time.perf_counter()
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [c.replace("PORT", str(self.port)) for c in self.command],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        while time.perf_counter() - begin < START_S and self.process.poll() is None:
            try:
                self.get(self.ready)
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.005)
            else:
                self.seconds_to_ready = time.perf_counter() - begin
                self.began = begin
                return self
        self.__exit__()
        raise RuntimeError(f"{self.command[0]} did not start:\n{self.log.read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read()

    def post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=1200) as answer:
            return json.load(answer)

    def together(self, path: str, bodies: list[dict]) -> tuple[float, list[dict]]:
        """All at once; seconds until the last answer, and the answers."""
        begin = time.perf_counter()
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: self.post(path, body), bodies))
        return time.perf_counter() - begin, answers

    def peak_bytes(self) -> int:
        """The process's largest resident set so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return 1024 * int(found[1])


def llama_server(llama: Path, model: Path, log: Path, *options: str) -> Server:
    """Its server; `options` are its own."""
    program = str(llama / "build" / "bin" / "llama-server")
    command = [program, "-m", str(model), "--host", "127.0.0.1", "--port", "PORT", *options]
    return Server(command, ready="/health", log=log)


def environment() -> dict[str, str]:
    """One OpenMP thread: numpy's pool must not stand beside the one that is measured."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
