"""Writers of OpenAI responses: events in, ``chat.completion`` or its chunks out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gossamer.protocol import sse
from gossamer.protocol.completion import Collector, Completion
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    PromptUsage,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.wire import Envelope


def usage_body(usage: Usage) -> dict[str, Any]:
    """The usage object; cached tokens in both places where clients of the family look."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def logprobs_body(tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    """The ``logprobs`` object of a choice; null where no token has any."""
    if not tokens:
        return None
    content = [{**_token(t), "top_logprobs": [_token(other) for other in t.top]} for t in tokens]
    return {"content": content, "refusal": None}


def _token(token: TokenLogprob) -> dict[str, Any]:
    raw = None if token.raw is None else list(token.raw)
    return {"token": token.text, "logprob": token.logprob, "bytes": raw}


class ChunkWriter:
    """Turns the events of one answer into ``chat.completion.chunk`` objects, in order."""

    def __init__(self, envelope: Envelope, *, include_usage: bool, both_names: bool = False):
        self._envelope = envelope
        self._include_usage = include_usage
        self._both_names = both_names
        self._usage: Usage | None = None
        self._begun = False

    def write(self, event: Event) -> list[dict[str, Any]]:
        """Chunks for one event; the first one carries the role."""
        if isinstance(event, Usage):
            self._usage = event
            return []
        if isinstance(event, Finish):
            chunks = [*self._role(), self._chunk({}, event.reason)]
            if self._include_usage and self._usage is not None:
                chunks.append({**self._head(), "choices": [], "usage": usage_body(self._usage)})
            return chunks
        if isinstance(event, PromptUsage):
            return []
        delta = _delta(event)
        if delta is None:
            return []
        if self._both_names and isinstance(event, ReasoningDelta):
            delta["reasoning"] = event.text
        logprobs = logprobs_body(event.logprobs) if isinstance(event, ContentDelta) else None
        return [*self._role(), self._chunk(delta, None, logprobs)]

    def _role(self) -> list[dict[str, Any]]:
        if self._begun:
            return []
        self._begun = True
        return [self._chunk({"role": "assistant", "content": ""}, None)]

    def _head(self) -> dict[str, Any]:
        e = self._envelope
        return {"id": e.id, "object": "chat.completion.chunk", "created": e.created, "model": e.model}

    def _chunk(
        self, delta: dict[str, Any], finish: str | None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        chunk = self._head()
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}]
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def _delta(event: Event) -> dict[str, Any] | None:
    match event:
        case ReasoningDelta():
            return {"reasoning_content": event.text}
        case ContentDelta():
            return {"content": event.text}
        case ToolCallBegin():
            function = {"name": event.name, "arguments": ""}
            call = {"index": event.index, "id": event.id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        case ToolCallArguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}
    # The end of a call has no form of its own on this wire.
    assert isinstance(event, ToolCallEnd)
    return None


class ResponseWriter:
    """Collects the events of one answer into one ``chat.completion`` object."""

    def __init__(self, envelope: Envelope):
        self._envelope = envelope
        self._collector = Collector()

    def write(self, event: Event) -> None:
        """Take one event in."""
        self._collector.write(event)

    def response(self) -> dict[str, Any]:
        """The whole response.

        Raises:
            ValueError: no `Finish` was seen, so the answer is not whole.
        """
        return response_body(self._envelope, self._collector.completion())


class ChatWire:
    """One answer in OpenAI's chat format; see `gossamer.protocol.wire.Wire`.

    ``both_names`` gives the reasoning as ``reasoning`` too, which clients of some other servers look for.
    """

    def __init__(self, envelope: Envelope, *, include_usage: bool = False, both_names: bool = False):
        self._envelope = envelope
        self._both_names = both_names
        self._chunks = ChunkWriter(envelope, include_usage=include_usage, both_names=both_names)

    def write(self, event: Event) -> bytes:
        """See `gossamer.protocol.wire.Wire.write`."""
        return b"".join(sse.encode_json(chunk) for chunk in self._chunks.write(event))

    def ping(self) -> bytes:
        """A comment: clients of this format know no event for it."""
        return sse.encode_comment("keep-alive")

    def end(self) -> bytes:
        """See `gossamer.protocol.wire.Wire.end`."""
        return sse.encode(sse.DONE)

    def fail(self, error: ApiError) -> bytes:
        """See `gossamer.protocol.wire.Wire.fail`."""
        return sse.encode_json(error.body())

    def whole(self, completion: Completion) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.whole`."""
        body = response_body(self._envelope, completion)
        if self._both_names:
            body["choices"][0]["message"]["reasoning"] = completion.reasoning
        return body

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.error_body`."""
        return error.body()


def response_body(envelope: Envelope, completion: Completion) -> dict[str, Any]:
    """The ``chat.completion`` object of a whole answer."""
    return _response(
        envelope,
        reasoning=completion.reasoning,
        content=completion.content,
        calls=[call.to_dict() for call in completion.tool_calls],
        finish=completion.finish,
        usage=None if completion.usage is None else usage_body(completion.usage),
        logprobs=logprobs_body(completion.logprobs),
    )


def _response(
    envelope: Envelope,
    *,
    reasoning: str,
    content: str,
    calls: list[dict[str, Any]],
    finish: str,
    usage: dict[str, Any] | None,
    logprobs: dict[str, Any] | None,
) -> dict[str, Any]:
    # An empty reasoning is written too: the client has to send back exactly what it got.
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content or (None if calls else ""),
        "reasoning_content": reasoning,
    }
    if calls:
        message["tool_calls"] = calls
    body: dict[str, Any] = {
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}],
    }
    if usage is not None:
        body["usage"] = usage
    return body


def accumulate(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The response that a stream of chunks amounts to.

    Raises:
        ValueError: the stream held no chunk, or ended before a ``finish_reason``.
    """
    envelope: Envelope | None = None
    text: dict[str, list[str]] = {"reasoning_content": [], "content": []}
    calls: dict[int, dict[str, Any]] = {}
    finish, usage, logprobs = None, None, None
    for chunk in chunks:
        envelope = envelope or Envelope(id=chunk["id"], model=chunk["model"], created=chunk["created"])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            finish = choice["finish_reason"] or finish
            logprobs = _joined(logprobs, choice.get("logprobs"))
            for key, pieces in text.items():
                pieces.append(choice["delta"].get(key) or "")
            for fragment in choice["delta"].get("tool_calls") or []:
                _add_fragment(calls, fragment)
    if envelope is None or finish is None:
        raise ValueError("the stream ended before a finish_reason")
    return _response(
        envelope,
        reasoning="".join(text["reasoning_content"]),
        content="".join(text["content"]),
        calls=[calls[index] for index in sorted(calls)],
        finish=finish,
        usage=usage,
        logprobs=logprobs,
    )


def _joined(before: dict[str, Any] | None, more: dict[str, Any] | None) -> dict[str, Any] | None:
    if before is None or more is None:
        return before or more
    return {**before, "content": before["content"] + more["content"]}


def _add_fragment(calls: dict[int, dict[str, Any]], fragment: dict[str, Any]) -> None:
    function = fragment["function"]
    if fragment["index"] not in calls:
        opened = {"name": function["name"], "arguments": ""}
        calls[fragment["index"]] = {"id": fragment["id"], "type": "function", "function": opened}
    calls[fragment["index"]]["function"]["arguments"] += function.get("arguments") or ""
