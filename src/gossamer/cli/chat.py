"""`gossamer chat`: a conversation in the terminal, or over pipes, one line per turn."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gossamer.cli.printer import Printer
from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer.server.load import Loaded

COMMANDS = """/reset          forget the conversation
/effort LEVEL   how much to reason: low, high or max
/tools FILE     offer the tools declared in a JSON file; /tools alone takes them away
/help           this list
/exit           leave (so does Ctrl-D)"""


class ChatCommandError(GossamerError, ValueError):
    """A command of the conversation that cannot be carried out."""


def chat(
    model: str = "nano",
    *,
    effort: str = "max",
    tools: Path | None = None,
    max_tokens: int | None = None,
    temperature: float = 1.0,
    seed: int | None = None,
    threads: int | None = None,
    activations: Literal["exact", "bf16", "mxfp8", "int8"] = "exact",
    trunk: Literal["stored", "int8"] = "stored",
    cache_dtype: Literal["bf16", "f32", "fp8"] = "bf16",
    state_dtype: Literal["f32", "bf16"] = "f32",
) -> int:
    r"""Talk to a local model; /help lists the commands, /exit leaves.

    When the model calls a tool, the next line you type is the tool's result. For example:

    `gossamer chat`

    `gossamer chat --effort low --tools weather.json`

    `printf 'hello\n/exit\n' | gossamer chat --seed 1`

    Args:
        model: nano (bundled), debug (random weights), or a model folder.
        effort: How much to reason: low, high or max.
        tools: A JSON file with an array of tool declarations as the OpenAI API takes them.
        max_tokens: Most tokens per answer; default: 131,072.
        temperature: 0 always takes the likeliest token.
        seed: Same seed, same lines: same conversation.
        threads: CPU threads of the engine; default: one for nano and debug, else every core.
        activations: What the inputs of packed experts are rounded to: nothing (exact), mxfp8, or int8, the
            fastest; bf16 rounds the inputs of all large matrices, which AVX512-BF16
            multiplies as they are.
        trunk: The other large matrices as stored, or made int8 at load: faster, less exact.
        cache_dtype: How latent KV and indexer keys are kept; fp8 takes half the memory of bf16, less exact.
        state_dtype: How KDA state is kept; bf16 takes half the memory of f32, less exact.
    """
    options = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed, "reasoning_effort": effort}
    conversation = Conversation(options)
    conversation.check()
    if tools is not None:
        conversation.offer(str(tools))
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
    if sys.stdin.isatty():
        print(f"{loaded.name}; /help lists the commands")
    with asyncio.Runner() as runner:
        _converse(runner, loaded, conversation)
        runner.run(loaded.engine.close())
    return 0


class Conversation:
    """The messages so far and the settings of the next request."""

    def __init__(self, options: dict[str, Any]):
        self.messages: list[dict[str, Any]] = []
        self._options = options
        self._tools: list[Any] = []

    def waiting(self) -> list[tuple[str, str]]:
        """(id, tool name) of the calls whose results are missing."""
        answered = {m["tool_call_id"] for m in self.messages if m["role"] == "tool"}
        calls = [call for message in self.messages for call in message.get("tool_calls", [])]
        return [(call["id"], call["function"]["name"]) for call in calls if call["id"] not in answered]

    def add(self, line: str) -> bool:
        """Take a line as the next tool result or user message; whether the model is to answer now."""
        waiting = self.waiting()
        if waiting:
            self.messages.append({"role": "tool", "tool_call_id": waiting[0][0], "content": line})
        else:
            self.messages.append({"role": "user", "content": line})
        return len(waiting) <= 1

    def body(self) -> dict[str, Any]:
        """The request in OpenAI's shape."""
        tools = {"tools": self._tools} if self._tools else {}
        return {"model": "local", "messages": self.messages, **tools, **self._options}

    def check(self) -> None:
        """Refuse unusable options before a model is loaded."""
        from gossamer.protocol.request import parse

        parse({**self.body(), "messages": [{"role": "user", "content": "-"}]})

    def command(self, line: str) -> str:
        """Carry out a command other than /exit; returns what to print."""
        name, _, argument = line.partition(" ")
        argument = argument.strip()
        match name:
            case "/help":
                return COMMANDS
            case "/reset":
                self.messages.clear()
                return "conversation forgotten"
            case "/effort":
                before = self._options["reasoning_effort"]
                self._options["reasoning_effort"] = argument
                try:
                    self.check()
                except GossamerError:
                    self._options["reasoning_effort"] = before
                    raise
                return f"effort {argument}"
            case "/tools":
                self.offer(argument)
                return f"{len(self._tools)} tools offered"
        raise ChatCommandError(f"unknown command {name}; /help lists them")

    def offer(self, path: str) -> None:
        """Offer the tools of a JSON file; an empty path takes them away."""
        from gossamer.protocol.tools import parse_tools

        if not path:
            self._tools = []
            return
        try:
            tree = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ChatCommandError(f"cannot read tools from {path}: {error}") from None
        self._tools = list(parse_tools(tree, path, set()))


def _converse(runner: asyncio.Runner, loaded: Loaded, conversation: Conversation) -> None:
    while (line := _read(conversation)) is not None:
        if not line.strip():
            continue
        if line.strip() == "/exit":
            return
        if line.startswith("/"):
            try:
                print(conversation.command(line.strip()))
            except GossamerError as error:
                print(f"error: {error}", file=sys.stderr)
            continue
        before = len(conversation.messages)
        if conversation.add(line):
            try:
                conversation.messages.append(runner.run(_answer(loaded, conversation)))
            except GossamerError as error:
                del conversation.messages[before:]
                print(f"error: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                del conversation.messages[before:]
                print("\ninterrupted; your last line was taken back", file=sys.stderr)


def _read(conversation: Conversation) -> str | None:
    waiting = conversation.waiting()
    shown = f"result of {waiting[0][1]}> " if waiting else "> "
    try:
        # A pipe gets no prompt: its output is the answers alone.
        return input(shown if sys.stdin.isatty() else "")
    except EOFError:
        return None


async def _answer(loaded: Loaded, conversation: Conversation) -> dict[str, Any]:
    """Stream one answer to the terminal; returns it as the message to keep."""
    from gossamer.gateway.upstream import Context
    from gossamer.protocol.openai import Envelope, ResponseWriter
    from gossamer.protocol.request import parse

    printer = Printer(sys.stdout)
    whole = ResponseWriter(Envelope(id="local", model=loaded.name, created=0))
    try:
        async with aclosing(
            loaded.upstream.send(parse(conversation.body()), Context(request_id="local"))
        ) as events:
            async for event in events:
                whole.write(event)
                printer.write(event)
    finally:
        printer.close()
    return whole.response()["choices"][0]["message"]
