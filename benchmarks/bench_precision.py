"""What reduced precision changes: KL divergence of the next token on text, ours and llama.cpp's.

Both are measured on nano's weights against their own unreduced form, at the same places of the same text: the
documentation of this project, which nano was not trained on.
"""

import math
import sys
from pathlib import Path

import k3_files
import llama_peer
import numpy as np

import gossamer
from gossamer.engine.native_runner import open_folder
from gossamer.engine.runner import Segment
from gossamer.kernels import backend
from gossamer.kernels.network import Precision
from gossamer.text.tokenizer import Tokenizer

PLACES, PROMPT = 96, 128
LOGS = k3_files.CACHE
MODES: dict[str, dict] = {
    "mxfp8": {"precision": Precision(activations="mxfp8")},
    "int8": {"precision": Precision(activations="int8")},
    "bf16": {"precision": Precision(activations="bf16")},
    "int8.trunk": {"precision": Precision(trunk="int8")},
    "int8.both": {"precision": Precision(activations="int8", trunk="int8")},
    "f32.cache": {"dtype": "f32"},
    "fp8.cache": {"dtype": "fp8"},
    "bf16.state": {"state": "bf16"},
    "small.cache": {"dtype": "fp8", "state": "bf16"},
}
"""Options of `open_folder`; the caches of the exact form are BF16 rows and float32 state."""


def prompts(length: int = PROMPT, places: int = PLACES) -> list[list[int]]:
    """Pieces of text as ids."""
    folder = Path(gossamer.__file__).parent / "data" / "nano"
    files = sorted((k3_files.ROOT / "docs").glob("*.md"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    ids = Tokenizer.load(folder).encode(text)
    step = (len(ids) - length) // places
    assert step > 0, "not enough text"
    return [ids[i * step : i * step + length] for i in range(places)]


def ours(folder: Path, wanted: list[list[int]], **mode: object) -> np.ndarray:
    """Log-probabilities after each prompt, [places, V]."""
    runner = open_folder(folder, memory_bytes=1 << 28, max_sequences=1, **mode)
    rows = []
    for ids in wanted:
        runner.clear_slot(0)
        blocks = list(range(-(-len(ids) // runner.block_size)))
        (logits,) = runner.run([Segment(token_ids=ids, start=0, slot=0, blocks=blocks, want_logits=True)])
        shifted = logits.astype(np.float64) - logits.max()
        rows.append(shifted - math.log(np.exp(shifted).sum()))
    return np.stack(rows)


def theirs(llama: Path, model: Path, wanted: list[list[int]], vocab_size: int) -> np.ndarray:
    """The same from llama-server, which is asked for every token's probability."""
    rows = np.full((len(wanted), vocab_size), -np.inf)
    with llama_peer.llama_server(llama, model, LOGS / "llama.log", "-t", "1", "-c", "1024") as server:
        for row, ids in zip(rows, wanted, strict=True):
            body = {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": vocab_size}
            answer = server.ask("/completion", {**body, "cache_prompt": False})
            for entry in answer["completion_probabilities"][0]["top_logprobs"]:
                row[entry["id"]] = entry["logprob"]
    return rows


def divergence(exact: np.ndarray, near: np.ndarray) -> tuple[float, float]:
    """Mean KL in nats over what both gave a probability to, and the share of equal first choices."""
    both = np.isfinite(exact) & np.isfinite(near)
    p = np.where(both, np.exp(exact), 0.0)
    terms = p * (np.where(both, exact, 0.0) - np.where(both, near, 0.0))
    return float(terms.sum(1).mean()), float((exact.argmax(1) == near.argmax(1)).mean())


def rows() -> list[dict]:
    if not backend.available():
        print("precision: needs the native kernels", file=sys.stderr)
        return []
    llama, python = llama_peer.folder(), llama_peer.converter()
    folder, wanted = k3_files.nano_k3(), prompts()
    exact = ours(folder, wanted)
    found = {mode: divergence(exact, ours(folder, wanted, **p)) for mode, p in MODES.items()}
    plain = k3_files.gguf(folder, llama, python, "bf16")
    vocab = exact.shape[1]
    base = theirs(llama, plain, wanted, vocab)
    peer = divergence(base, theirs(llama, k3_files.quantised(plain, llama), wanted, vocab))
    between = divergence(exact, base)
    return [
        {
            "name": f"precision.kl.{mode}",
            "ours": kl,
            "peer": peer[0],
            "ratio": peer[0] / kl,
            "goal": None,
            "unit": "nats",
            "conditions": f"nano-k3, {PLACES} places of text, {PROMPT} tokens before each; first "
            f"choice kept at "
            f"{100 * same:.0f} %; peer is llama.cpp's Q8_0 trunk against its own BF16 "
            f"({100 * peer[1]:.0f} %); "
            f"llama.cpp's BF16, with int8 inputs of experts, against ours exact: {between[0]:.3g}",
        }
        for mode, (kl, same) in found.items()
    ]
