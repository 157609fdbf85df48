"""`gossamer serve`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

MOST_GIB = 1 << 20


def serve(
    model: str = "nano",
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    served_model_name: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    max_sequences: int = 16,
    cache_gib: float | None = None,
    activations: Literal["exact", "bf16", "mxfp8", "int8"] = "exact",
    trunk: Literal["stored", "int8"] = "stored",
    cache_dtype: Literal["bf16", "f32", "fp8"] = "bf16",
    state_dtype: Literal["f32", "bf16"] = "f32",
    spill: Path | None = None,
    spill_gib: float = 8.0,
    kernels: Literal["avx512_bf16", "avx512", "avx2", "portable"] | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    passback: Literal["require", "allow"] = "require",
) -> int:
    """Serve a local model over the OpenAI wire format until Ctrl-C.

    Requests share every step of the model; prompts that begin alike share what was computed. For example:

    `gossamer serve` -- the bundled model at http://127.0.0.1:8080/v1

    `gossamer serve debug --port 9000` -- random weights, for testing a client

    `gossamer serve ./my-model --served-model-name kimi-k3.1-pro` -- a folder, under another id

    Args:
        model: nano (bundled), debug (random weights), or a model folder.
        host: Address to listen on; 0.0.0.0 lets other machines in.
        port: Port to listen on; 0 picks a free one.
        served_model_name: The id that clients ask for; default: the model's name.
        seed: Default seed of requests that send none.
        threads: CPU threads of the engine; default: one for nano and debug, else every core.
        max_sequences: Most requests at a time; others wait.
        cache_gib: Memory for the sequences' state and cache in GiB; default: 1 for nano and debug, else a
            quarter of what is free.
        activations: What the inputs of packed experts are rounded to: nothing (exact), mxfp8, or int8, the
            fastest; bf16 rounds the inputs of all large matrices, which AVX512-BF16
            multiplies as they are.
        trunk: The other large matrices as stored, or made int8 at load: faster, less exact.
        cache_dtype: How latent KV and indexer keys are kept; fp8 takes half the memory of bf16, less exact.
        state_dtype: How KDA state is kept; bf16 takes half the memory of f32, less exact.
        spill: A folder where prefixes that leave the cache are kept, so that they survive a restart. It holds
            what was computed from conversations: keep it as private as they are.
        spill_gib: The most that folder takes in GiB.
        kernels: Instruction set of the kernels; default: the best that runs here.
        log_level: What is logged to stderr; never any text of a conversation.
        passback: Whether assistant messages with tool calls must bring their reasoning back.
    """
    from gossamer.server.run import serve as run

    return run(
        model,
        host=host,
        port=port,
        served_model_name=served_model_name,
        seed=seed,
        threads=threads,
        max_sequences=max_sequences,
        cache_bytes=None if cache_gib is None else _bytes(cache_gib, "--cache-gib"),
        activations=activations,
        trunk=trunk,
        cache_dtype=cache_dtype,
        state_dtype=state_dtype,
        spill=spill,
        spill_bytes=_bytes(spill_gib, "--spill-gib"),
        instructions=kernels,
        log_level=log_level,
        passback=passback,
    )


def _bytes(gib: float, option: str) -> int:
    from gossamer.server.load import LoadError

    if not (math.isfinite(gib) and 0 < gib < MOST_GIB):
        raise LoadError(f"{option} must be above 0 and below {MOST_GIB:,}, got {gib}")
    return int(gib * 2**30)
