"""A deterministic upstream without a model: for trying clients, and for every test of the front.

It reasons about what it was asked, says the last user text back, and calls an offered tool when the
text names it or when the request demands a call.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.gateway.upstream import Context
from gossamer.protocol.errors import RequestError, context_exceeded
from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    PromptUsage,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.request import Request

_SAMPLES: dict[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
}


@dataclass(frozen=True, kw_only=True)
class EchoUpstream:
    """Answers from the request alone; one piece per word, ``delay_s`` seconds apart."""

    delay_s: float = 0.0
    max_context: int = 1 << 20

    async def tokenize(self, request: Request) -> Sequence[int]:
        """One id a word: its checksum."""
        words = [word for message in request.messages for word in _words(message.text)]
        return [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words]

    async def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        """See `gossamer.gateway.upstream.Upstream.send`."""
        if request.logprobs is not None:
            raise RequestError(
                "logprobs: an echo has no log-probabilities; leave logprobs out",
                param="logprobs",
                code="unsupported_value",
            )
        num_prompt = len(await self.tokenize(request))
        if num_prompt + (request.max_tokens or 1) > self.max_context:
            raise context_exceeded(self.max_context, num_prompt, request.max_tokens)
        yield PromptUsage(prompt_tokens=num_prompt)
        pieces, finish = _answer(request)
        limit = len(pieces) if request.max_tokens is None else request.max_tokens
        for event in pieces[:limit]:
            await asyncio.sleep(self.delay_s)
            yield event
        spoken = pieces[:limit]
        yield Usage(
            prompt_tokens=num_prompt,
            completion_tokens=len(spoken),
            reasoning_tokens=sum(isinstance(event, ReasoningDelta) for event in spoken),
        )
        yield Finish("length" if limit < len(pieces) else finish)


def _answer(request: Request) -> tuple[list[Event], FinishReason]:
    last = request.messages[-1]
    asked = next((m.text for m in reversed(request.messages) if m.role == "user"), "")
    tool = None if last.role == "tool" else _chosen_tool(request, asked)
    thought = f"The user wrote {len(_words(asked))} words; effort is {request.reasoning_effort}."
    if tool is not None:
        thought += f" The tool {tool['name']} fits."
    events: list[Event] = [ReasoningDelta(word) for word in _words(thought)]
    if tool is None:
        said = f"The tool said: {last.text}" if last.role == "tool" else f"You said: {asked}"
        return events + [ContentDelta(word) for word in _words(said)], "stop"
    arguments = json.dumps(_arguments(tool.get("parameters") or {}))
    events.append(ToolCallBegin(index=0, id=f"{tool['name']}:0", name=tool["name"]))
    events += [ToolCallArguments(index=0, text=piece) for piece in _words(arguments)]
    events.append(ToolCallEnd(index=0))
    return events, "tool_calls"


def _chosen_tool(request: Request, asked: str) -> Mapping[str, Any] | None:
    if request.tool_choice == "none":
        return None
    offered = [*request.tools, *(tool for message in request.messages for tool in message.tools)]
    functions = [tool["function"] for tool in offered]
    spoken = asked.lower().replace("_", " ")
    named = [f for f in functions if f["name"].lower().replace("_", " ") in spoken]
    if request.named_tool is not None:
        return next(f for f in functions if f["name"] == request.named_tool)
    if named:
        return named[0]
    return functions[0] if request.tool_choice == "required" else None


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    required = schema.get("required") or list(properties)
    return {name: _sample(properties.get(name) or {}) for name in required}


def _sample(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return _SAMPLES.get(kind) if isinstance(kind, str) else _SAMPLES.get(kind[0])


def _words(text: str) -> list[str]:
    """Pieces that join to the text again, each a word with the blanks after it."""
    return re.findall(r"\s*\S+\s*|\s+", text)
