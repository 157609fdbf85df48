"""`gossamer serve`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from gossamer.server.run import FrontOptions

MOST_GIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class FrontFlags:
    """What the server asks of its clients, as flags.

    Attributes:
        log_level: What is logged to stderr; never any text of a conversation.
        log_format: Lines for people, or a JSON object each.
        passback: What to do with an assistant message that has tool calls and no reasoning: reject it as the
            published model's API does, warn (a header and the log say so), or allow it.
        strict_kimi: Refuse sampling parameters that the published model fixes, such as a temperature not 1.
        both_reasoning_names: Give reasoning in the chat format as reasoning_content and as reasoning.
        max_context: Most tokens of prompt and answer together; default: what the model and its memory hold.
        api_keys: The file of keys; only who brings one is served. It may change while the server runs.
        allow_public_without_keys: Serve everybody who can reach an address that other machines reach.
        allow_origin: A web page's origin, such as https://chat.example, whose scripts may read the answers.
        allow_media_host: A host that images may be fetched from by URL, as HOST, HOST:PORT or, inside a
            private network, HOST=ADDRESS; https unless http:// stands before it. Others are refused.
        max_body_mib: The largest request in MiB.
        drain: Seconds that answers in flight are given to end when the server is asked to stop; a second
            Ctrl-C ends them at once.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    passback: Literal["reject", "warn", "allow"] = "reject"
    strict_kimi: bool = False
    both_reasoning_names: bool = False
    max_context: int | None = None
    api_keys: Path | None = None
    allow_public_without_keys: bool = False
    allow_origin: list[str] | None = None
    allow_media_host: list[str] | None = None
    max_body_mib: int = 64
    drain: float = 30.0

    def options(self) -> FrontOptions:
        """The same as the server takes them."""
        from gossamer.server.run import FrontOptions

        return FrontOptions(
            api_keys=self.api_keys,
            allow_public=self.allow_public_without_keys,
            allow_origins=tuple(self.allow_origin or ()),
            media_hosts=tuple(self.allow_media_host or ()),
            max_body_bytes=self.max_body_mib << 20,
            drain_s=self.drain,
            passback=self.passback,
            strict_kimi=self.strict_kimi,
            both_names=self.both_reasoning_names,
            max_context=self.max_context,
            log_level=self.log_level,
            log_format=self.log_format,
        )


DEFAULT_FRONT = FrontFlags()


def serve(
    model: str = "nano",
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    served_model_name: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    max_sequences: int = 16,
    max_queue: int = 256,
    cache_gib: float | None = None,
    activations: Literal["exact", "bf16", "mxfp8", "int8"] = "exact",
    trunk: Literal["stored", "int8"] = "stored",
    cache_dtype: Literal["bf16", "f32", "fp8"] = "bf16",
    state_dtype: Literal["f32", "bf16"] = "f32",
    spill: Path | None = None,
    spill_gib: float = 8.0,
    kernels: Literal["avx512_bf16", "avx512", "avx2", "portable"] | None = None,
    front: Annotated[FrontFlags, Parameter(name="*")] = DEFAULT_FRONT,
) -> int:
    """Serve a local model over the OpenAI wire format until Ctrl-C.

    Requests share every step of the model; prompts that begin alike share what was computed. For example:

    `gossamer serve` -- the bundled model at http://127.0.0.1:8080/v1

    `gossamer serve debug --port 9000` -- random weights, for testing a client

    `gossamer serve ./my-model --served-model-name kimi-k3.1-pro` -- a folder, under another id

    `gossamer serve --host 0.0.0.0 --api-keys keys.json` -- for other machines; `gossamer keys add` makes keys

    Args:
        model: nano (bundled), debug (random weights), or a model folder.
        host: Address to listen on; 0.0.0.0 lets other machines in, and then keys are wanted.
        port: Port to listen on; 0 picks a free one.
        served_model_name: The id that clients ask for; default: the model's name.
        seed: Default seed of requests that send none.
        threads: CPU threads of the engine; default: one for nano and debug, else every core.
        max_sequences: Most requests at a time; others wait.
        max_queue: Most requests that wait; more are told to come again.
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
        front: See `FrontFlags`.
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
        max_queue=max_queue,
        cache_bytes=None if cache_gib is None else _bytes(cache_gib, "--cache-gib"),
        activations=activations,
        trunk=trunk,
        cache_dtype=cache_dtype,
        state_dtype=state_dtype,
        spill=spill,
        spill_bytes=_bytes(spill_gib, "--spill-gib"),
        instructions=kernels,
        front=front.options(),
    )


def _bytes(gib: float, option: str) -> int:
    from gossamer.server.load import LoadError

    if not (math.isfinite(gib) and 0 < gib < MOST_GIB):
        raise LoadError(f"{option} must be above 0 and below {MOST_GIB:,}, got {gib}")
    return int(gib * 2**30)
