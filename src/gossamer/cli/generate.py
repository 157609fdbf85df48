"""`gossamer generate`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gossamer.cli.printer import Printer, printable, speed_line
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer.protocol.request import Request
    from gossamer.server.load import Loaded


class PromptError(GossamerError, ValueError):
    """There is nothing to continue."""


def generate(
    model: str = "nano",
    *,
    prompt: str | None = None,
    raw: bool = False,
    max_tokens: int = 512,
    temperature: float = 1.0,
    top_p: float = 0.95,
    seed: int | None = None,
    effort: str = "max",
    threads: int | None = None,
    activations: Literal["exact", "bf16", "mxfp8", "int8"] = "exact",
    trunk: Literal["stored", "int8"] = "stored",
    cache_dtype: Literal["bf16", "f32", "fp8"] = "bf16",
    state_dtype: Literal["f32", "bf16"] = "f32",
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Answer one prompt with a local model, streaming reasoning and answer.

    For example:

    `gossamer generate --prompt "Why is the sky blue?"`

    `echo "Once upon a time" | gossamer generate --raw --temperature 0.7 --seed 1`

    `gossamer generate debug --prompt hi --max-tokens 20 --json`

    Args:
        model: nano (bundled), debug (random weights), or a model folder.
        prompt: The text; read from stdin when absent.
        raw: Continue the text itself, without the chat format.
        max_tokens: Most tokens to generate, reasoning included.
        temperature: 0 always takes the likeliest token.
        top_p: Share of probability to sample from.
        seed: Same seed, same prompt: same text.
        effort: How much to reason: low, high or max.
        threads: CPU threads of the engine; default: one for nano and debug, else every core.
        activations: What the inputs of packed experts are rounded to: nothing (exact), mxfp8, or int8, the
            fastest; bf16 rounds the inputs of all large matrices, which AVX512-BF16
            multiplies as they are.
        trunk: The other large matrices as stored, or made int8 at load: faster, less exact.
        cache_dtype: How latent KV and indexer keys are kept; fp8 takes half the memory of bf16, less exact.
        state_dtype: How KDA state is kept; bf16 takes half the memory of f32, less exact.
        as_json: Print one JSON object at the end instead of a stream of text.
    """
    text = _prompt(prompt)
    # Validated before the model is loaded: a bad option should not cost the wait.
    request = _request(text, max_tokens, temperature, top_p, seed, effort)
    from gossamer.kernels.network import Precision
    from gossamer.server.load import Resources, load

    loaded = load(
        model,
        seed=seed,
        resources=Resources(
            threads=threads,
            max_sequences=1,
            precision=Precision(activations=activations, trunk=trunk),
            cache_dtype=cache_dtype,
            state_dtype=state_dtype,
        ),
        warn=lambda line: print(f"WARNING: {line}", file=sys.stderr),
    )
    run = _raw(loaded, text, request, as_json) if raw else _chat(loaded, request, as_json)
    asyncio.run(run)
    return 0


def _prompt(prompt: str | None) -> str:
    if prompt is None:
        if sys.stdin.isatty():
            raise PromptError("no prompt: pass --prompt TEXT or pipe the text in")
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise PromptError("the prompt is empty")
    return prompt


def _request(
    text: str, max_tokens: int, temperature: float, top_p: float, seed: int | None, effort: str
) -> Request:
    from gossamer.protocol.request import parse

    return parse(
        {
            "model": "local",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "seed": seed,
            "reasoning_effort": effort,
        }
    )


async def _chat(loaded: Loaded, request: Request, as_json: bool) -> None:
    from gossamer.gateway.upstream import Context
    from gossamer.protocol.openai import Envelope, ResponseWriter

    printer = Printer(sys.stdout)
    whole = ResponseWriter(Envelope(id="local", model=loaded.name, created=0))
    began = time.perf_counter()
    async with aclosing(loaded.upstream.send(request, Context(request_id="local"))) as events:
        async for event in events:
            whole.write(event)
            if not as_json:
                printer.write(event)
    duration_s = time.perf_counter() - began
    await loaded.engine.close()
    response = whole.response()
    choice, usage = response["choices"][0], response["usage"]
    if as_json:
        _print_json(
            {**choice["message"], "finish_reason": choice["finish_reason"], "usage": usage},
            usage["completion_tokens"],
            duration_s,
        )
    else:
        _print_speed(usage["prompt_tokens"], usage["completion_tokens"], choice["finish_reason"], duration_s)


async def _raw(loaded: Loaded, text: str, request: Request, as_json: bool) -> None:
    token_ids = loaded.tokenizer.encode(text)
    decoder = loaded.tokenizer.stream_decoder()
    params = loaded.upstream.sampling_params(request)
    pieces: list[str] = []
    num_generated, reason = 0, "length"

    def show(piece: str) -> None:
        pieces.append(piece)
        if not as_json:
            print(printable(piece), end="", flush=True)

    began = time.perf_counter()
    async with aclosing(loaded.engine.submit(token_ids, params)) as tokens:
        async for token in tokens:
            num_generated += 1
            reason = token.finish_reason or reason
            if token.token_id is not None and not loaded.tokenizer.is_special(token.token_id):
                show(decoder.feed([token.token_id]))
    show(decoder.finish())
    duration_s = time.perf_counter() - began
    await loaded.engine.close()
    if as_json:
        usage = {"prompt_tokens": len(token_ids), "completion_tokens": num_generated}
        tree = {"text": "".join(pieces), "finish_reason": reason, "usage": usage}
        _print_json(tree, num_generated, duration_s)
    else:
        print()
        _print_speed(len(token_ids), num_generated, reason, duration_s)


def _print_json(tree: dict[str, Any], num_generated: int, duration_s: float) -> None:
    measured = {"duration_s": round(duration_s, 3), "tokens_per_s": round(num_generated / duration_s, 2)}
    print(json.dumps({**tree, "measured": measured}, ensure_ascii=False))


def _print_speed(num_prompt: int, num_generated: int, reason: str, duration_s: float) -> None:
    sys.stdout.flush()
    line = speed_line(num_prompt=num_prompt, num_generated=num_generated, duration_s=duration_s)
    print(f"{line}; finish: {reason}", file=sys.stderr)
