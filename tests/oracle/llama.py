"""llama.cpp's server on one model file, asked with token ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from server_process import ServerProcess

NUM_PROBS = 10
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


class LlamaServer(ServerProcess):
    """A context manager; the process ends with it."""

    def __init__(self, binary: Path, model: Path, log: Path) -> None:
        command = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", "PORT", *_FLAGS]
        super().__init__(command, ready="/health", log=log)

    def complete(self, prompt: list[int], num_tokens: int) -> Completion:
        """Up to num_tokens greedy tokens after a prompt, computed from scratch."""
        answer = self.ask(
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
