"""Serving against llama-server: many requests at a time, start to first token, memory; and what "
"sparsity gives."""

import subprocess
import sys
import time
from pathlib import Path

import bench_engine
import k3_files
import llama_peer
import numpy as np
from server_process import ServerProcess

import gossamer
from gossamer.kernels import backend
from gossamer.kernels.network import Precision
from gossamer.text.tokenizer import Tokenizer

REQUESTS, PROMPT, ANSWER = 16, 512, 128
LONG = 32768
STARTS = 5
LOGS = k3_files.CACHE
NANO = Path(gossamer.__file__).parent / "data" / "nano"

PEAK = """
import sys, re
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import bench_engine
from gossamer.kernels.network import Precision
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
ours = bench_engine.Ours(Path(sys.argv[2]), 2, Precision(activations=sys.argv[3]))
ours.prefill(256)
ours.decode(16)
print(peak() - before)
"""


def served(folder: Path) -> Path:
    """The same checkpoint beside nano's tokenizer, which our server reads."""
    out = folder.with_name(f"{folder.name}-served")
    out.mkdir(exist_ok=True)
    for path in (*folder.glob("*.safetensors*"), folder / "config.json"):
        link = out / path.name
        if not link.exists():
            link.symlink_to(path.resolve())
    for name in ("tiktoken.model", "tokenizer_config.json"):
        (out / name).write_bytes((NANO / name).read_bytes())
    return out


def our_server(folder: Path, log: Path, *options: str) -> ServerProcess:
    program = str(Path(sys.executable).with_name("gossamer"))
    command = [program, "serve", str(folder), "--port", "PORT", *options]
    return ServerProcess(command, ready="/healthz", log=log)


def question(seed: int, tokens: int) -> dict:
    """A request whose prompt has about so many tokens."""
    tokenizer = Tokenizer.load(NANO)
    rng = np.random.default_rng(seed)
    words: list[str] = []
    while len(tokenizer.encode(" ".join(words))) < tokens:
        words += [f"{rng.integers(10**6)}"]
    return {
        "model": "bench",
        "messages": [{"role": "user", "content": " ".join(words)}],
        "max_tokens": ANSWER,
        "ignore_eos": True,
        "seed": seed,
    }


def concurrent_rows(folder: Path, gguf: Path, llama: Path) -> list[dict]:
    """Tokens per second, prompts and answers together, of 16 requests at once."""
    found: dict[str, float] = {}
    for mode in ("exact", "int8"):
        options = [
            "--served-model-name",
            "bench",
            "--threads",
            "2",
            "--activations",
            mode,
            "--cache-gib",
            "2",
        ]
        with our_server(served(folder), LOGS / "ours.log", *options) as server:
            bodies = [question(i, PROMPT) for i in range(REQUESTS)]
            seconds, answers = llama_peer.together(server, "/v1/chat/completions", bodies)
        usage = [answer["usage"] for answer in answers]
        assert all(u["completion_tokens"] == ANSWER for u in usage), usage
        found[mode] = sum(u["total_tokens"] for u in usage) / seconds
        prompts = sum(u["prompt_tokens"] for u in usage) // REQUESTS
    options = ["-t", "2", "-np", str(REQUESTS), "-c", str(REQUESTS * 1024), "--no-webui"]
    with llama_peer.llama_server(llama, gguf, LOGS / "llama.log", *options) as server:
        rng = np.random.default_rng(0)
        bodies = [
            {
                "prompt": rng.integers(0, 32000, prompts).tolist(),
                "n_predict": ANSWER,
                "ignore_eos": True,
                "cache_prompt": False,
                "seed": i,
            }
            for i in range(REQUESTS)
        ]
        seconds, answers = llama_peer.together(server, "/completion", bodies)
        made = sum(a["tokens_predicted"] + a["tokens_evaluated"] for a in answers)
    peer = made / seconds
    return [
        {
            "name": f"serve.16.{mode}",
            "ours": found[mode],
            "peer": peer,
            "ratio": found[mode] / peer,
            "goal": 2.0,
            "unit": "tokens/s",
            "conditions": f"bench over HTTP, {REQUESTS} requests at once of {prompts} prompt and "
            f"{ANSWER} answer "
            f"tokens, all of them counted, two threads, activations {mode}; peer llama-server -np "
            f"{REQUESTS}, BF16 "
            "trunk; one run each",
        }
        for mode in found
    ]


def first_token(server: ServerProcess, path: str, body: dict) -> float:
    """Seconds from the start of the process to a whole answer of one token."""
    with server:
        server.ask(path, body)
        return time.perf_counter() - server.began


def start_rows(name: str, folder: Path, gguf: Path, llama: Path) -> list[dict]:
    """A warm file: both sides read it before."""
    ask = {**question(1, 8), "max_tokens": 1}
    ours = lambda: first_token(  # noqa: E731
        our_server(served(folder), LOGS / "ours.log", "--served-model-name", "bench"),
        "/v1/chat/completions",
        ask,
    )
    body = {"prompt": list(range(5, 13)), "n_predict": 1}
    peer = lambda: first_token(  # noqa: E731
        llama_peer.llama_server(llama, gguf, LOGS / "llama.log", "-t", "2", "-c", "4096"), "/completion", body
    )
    figures = bench_engine.alternating({"warm": ours, "ours": ours, "peer": peer}, rounds=STARTS)
    return [
        {
            "name": f"serve.first_token.{name}",
            "ours": figures["ours"],
            "peer": figures["peer"],
            "ratio": figures["peer"] / figures["ours"],
            "goal": 1.0,
            "unit": "s",
            "conditions": "start of the server process to an answer of one token, warm file; ratio "
            "is peer over "
            f"ours; peer llama-server; median of {STARTS} turns",
        }
    ]


def memory_rows(folder: Path, gguf: Path, llama: Path) -> list[dict]:
    """Peak resident memory over the size of the file."""
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    here = str(Path(__file__).resolve().parent)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, here, str(folder), "exact"], check=True, capture_output=True, text=True
    )
    ours = int(done.stdout) / size
    peers = {}
    for kind, options in (("repacked", []), ("no-repack", ["--no-repack"])):
        arguments = ["-t", "2", "-c", "4096", *options]
        with llama_peer.llama_server(llama, gguf, LOGS / "llama.log", *arguments) as server:
            server.ask("/completion", {"prompt": list(range(5, 261)), "n_predict": 16})
            peers[kind] = server.peak_bytes() / gguf.stat().st_size
    return [
        {
            "name": "serve.peak_memory",
            "ours": ours,
            "peer": peers["no-repack"],
            "ratio": 1.05 / ours,
            "goal": 1.0,
            "unit": "of the file",
            "conditions": f"bench, exact, peak resident set less the interpreter's over the file's "
            f"{size / 1e9:.2f} "
            f"GB, at most 1.05 wanted, ratio is 1.05 over ours; peer llama-server --no-repack, whole "
            f"process; "
            f"{peers['repacked']:.3g} with its default",
        }
    ]


def long_rows() -> list[dict]:
    """nano with its indexers against the same weights without, after 32k tokens."""
    rates: dict[str, tuple[float, float]] = {}
    for name, folder in (("sparse", NANO), ("dense", k3_files.nano_k3())):
        ours = bench_engine.Ours(folder, 1, Precision())
        rates[name] = (ours.prefill(LONG), ours.decode_from(LONG, 128))
    return [
        {
            "name": f"engine.sparse.{part}.32k",
            "ours": rates["sparse"][i],
            "peer": rates["dense"][i],
            "ratio": rates["sparse"][i] / rates["dense"][i],
            "goal": 1.0,
            "unit": "tokens/s",
            "conditions": f"nano, one thread, exact: {what}; peer the same weights without indexers, "
            f"attending to "
            "everything; one run each",
        }
        for i, (part, what) in enumerate(
            (("prefill", "a prompt of 32,768 tokens"), ("decode", "128 tokens after 32,768"))
        )
    ]


def rows() -> list[dict]:
    if not backend.available():
        print("serve: needs the native kernels", file=sys.stderr)
        return []
    llama, python = llama_peer.folder(), llama_peer.converter()
    bench, nano = k3_files.bench(), k3_files.nano_k3()
    bench_file = k3_files.gguf(bench, llama, python, "bf16")
    nano_file = k3_files.gguf(nano, llama, python, "bf16")
    return [
        *long_rows(),
        *memory_rows(bench, bench_file, llama),
        *start_rows("nano-k3", nano, nano_file, llama),
        *start_rows("bench", bench, bench_file, llama),
        *concurrent_rows(bench, bench_file, llama),
    ]
