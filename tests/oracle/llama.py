"""llama.cpp's server on one model file, asked with token ids."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUM_PROBS = 10
_START_S = 120.0
# One thread, no repacked weights and a float32 cache: the plain path, as exact as this server gets.
_FLAGS = [
    "-t",
    "1",
    "-c",
    "2048",
    "-np",
    "1",
    "--no-repack",
    "--no-warmup",
    "-fa",
    "off",
    "-ctk",
    "f32",
    "-ctv",
    "f32",
]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Greedy tokens and, before each, the ids and log-probabilities of the ten likeliest."""

    tokens: list[int]
    top: list[list[tuple[int, float]]]


class LlamaServer:
    """A context manager; the process ends with it."""

    def __init__(self, binary: Path, model: Path, log: Path) -> None:
        self.binary, self.model, self.log = binary, model, log

    def __enter__(self) -> LlamaServer:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [str(self.binary), "-m", str(self.model), "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("w") as output:
            self.process = subprocess.Popen([*command, *_FLAGS], stdout=output, stderr=subprocess.STDOUT)
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self._request("/health", None)
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
            else:
                return
        self.__exit__()
        raise RuntimeError(f"llama-server did not start:\n{self.log.read_text()[-3000:]}")

    def complete(self, prompt: list[int], num_tokens: int) -> Completion:
        """Up to num_tokens greedy tokens after a prompt, computed from scratch."""
        answer = self._request(
            "/completion",
            {
                "prompt": prompt,
                "n_predict": num_tokens,
                "temperature": 0,
                "n_probs": NUM_PROBS,
                "cache_prompt": False,
                "return_tokens": True,
            },
        )
        steps = answer["completion_probabilities"]
        tokens = [step["id"] for step in steps]
        assert tokens == answer["tokens"], "the server left out probabilities of some tokens"
        return Completion(
            tokens=tokens, top=[[(t["id"], t["logprob"]) for t in step["top_logprobs"]] for step in steps]
        )

    def _request(self, path: str, body: dict[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=200) as response:
            return json.load(response)
