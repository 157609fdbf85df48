"""Calling outside implementations in environments of their own: named arrays in, named arrays out."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
REQUIRED = "GOSSAMER_ORACLE"
"""Set to 1 by scripts/oracle: an absent environment is then an error, not a skip."""


def absent(reason: str) -> None:
    """Skip visibly, or fail where the caller asked for every oracle."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _checked(script: str, *arguments: str) -> Path:
    command = [str(ROOT / "scripts" / script), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        absent((done.stderr.strip().splitlines() or [f"{script} failed"])[-1])
    return ROOT / done.stdout.strip().splitlines()[-1]


def python(name: str) -> Path:
    """The interpreter of .oracle/<name>.  Not resolved: a link out of the environment would lose it."""
    return _checked("oracle_env", "--check", name)


def llama_source() -> Path:
    """The folder llama.cpp was built in."""
    return _checked("oracle_llama", "--check")


class Worker:
    """One worker script, started once and asked many times: importing its libraries takes seconds."""

    def __init__(self, environment: str, script: str, folder: Path) -> None:
        self.folder = folder
        self.log = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [str(python(environment)), str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        self.count = 0

    def ask(self, task: str, arrays: dict[str, np.ndarray], options: dict[str, Any]) -> dict[str, np.ndarray]:
        """Run one task; a failure inside fails the test with the worker's traceback."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.count += 1
        inputs, outputs = self.folder / f"in{self.count}.npz", self.folder / f"out{self.count}.npz"
        np.savez(inputs, **arrays)
        request = {"task": task, "inputs": str(inputs), "outputs": str(outputs), "options": options}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            pytest.fail(f"the worker died:\n{self.log.read()[-4000:]}")
        answer = json.loads(line)
        if not answer["ok"]:
            pytest.fail(f"the worker's {task} failed:\n{answer['error']}")
        with np.load(outputs) as stored:
            return {name: stored[name] for name in stored.files}

    def close(self) -> None:
        """End the process by closing its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


class Outside:
    """Every worker of one test session."""

    def __init__(self) -> None:
        self.workers: dict[tuple[str, str], Worker] = {}
        self.folder = tempfile.TemporaryDirectory()

    def __call__(self, environment: str, script: str, task: str, arrays: dict, **options: Any) -> dict:
        """Ask tests/oracle/<script>, run by .oracle/<environment>, for ``task``."""
        key = environment, script
        if key not in self.workers:
            folder = Path(self.folder.name) / f"{environment}-{Path(script).stem}"
            folder.mkdir(exist_ok=True)
            self.workers[key] = Worker(environment, script, folder)
        return self.workers[key].ask(task, arrays, options)

    def close(self) -> None:
        """End every worker."""
        for worker in self.workers.values():
            worker.close()
        self.folder.cleanup()
