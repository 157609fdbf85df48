"""Answers in Anthropic's Messages format: whole, and as the named events of a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gossamer.protocol import sse
from gossamer.protocol.anthropic_messages import call_block, load_arguments
from gossamer.protocol.completion import Completion
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    PromptUsage,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.messages import ToolCall
from gossamer.protocol.wire import Envelope

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def signature_of(reasoning: str) -> str:
    """The signature of a thinking block: a checksum.  Any signature is accepted back."""
    return "gossamer-1." + hashlib.sha256(reasoning.encode("utf-8", "surrogatepass")).hexdigest()


def error_type(status: int) -> str:
    """The type of an error by its HTTP status."""
    return ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_body(error: ApiError, request_id: str | None) -> dict[str, Any]:
    """An error as clients of the format read it."""
    said: dict[str, Any] = {"type": error_type(error.status), "message": error.message}
    if error.code is not None:
        said["details"] = {"error_code": error.code}
    return {"type": "error", "error": said, "request_id": request_id}


def usage_body(usage: Usage | PromptUsage | None) -> dict[str, Any]:
    """The usage object: ``input_tokens`` are those that no cache had."""
    prompt = 0 if usage is None else usage.prompt_tokens
    cached = 0 if usage is None else usage.cached_tokens
    body: dict[str, Any] = {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens if isinstance(usage, Usage) else 0,
    }
    if isinstance(usage, Usage):
        body["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return body


class MessagesWire:
    """One answer; see `gossamer.protocol.wire.Wire`.

    Every answer begins with a thinking block, an empty one where the model thought nothing: the client has
    to bring it back with its tool calls.

    Args:
        envelope: Its identity.
        request_id: Named in errors.
        eager: Tools whose input is streamed as it comes; see
            `gossamer.protocol.anthropic_request.MessagesRequest`.
    """

    def __init__(self, envelope: Envelope, *, request_id: str, eager: Collection[str] = ()):
        self._envelope = envelope
        self._request_id = request_id
        self._eager = eager
        self._prompt: PromptUsage | None = None
        self._usage: Usage | None = None
        self._begun = False
        self._index = -1
        self._open: str | None = None
        self._thought: list[str] = []
        self._call: ToolCallBegin | None = None
        self._arguments: list[str] = []

    def write(self, event: Event) -> bytes:
        """See `gossamer.protocol.wire.Wire.write`."""
        return _encode(self._write(event))

    def ping(self) -> bytes:
        """A ``ping`` event, after ``message_start``."""
        return _encode([*self._begin(), {"type": "ping"}])

    def end(self) -> bytes:
        """Nothing: the last event of a finished answer was written with its `Finish`."""
        return b""

    def fail(self, error: ApiError) -> bytes:
        """See `gossamer.protocol.wire.Wire.fail`."""
        return _encode([self.error_body(error)])

    def whole(self, completion: Completion) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.whole`."""
        body = self._message(usage_body(completion.usage))
        body["content"] = content_blocks(completion)
        body |= _ending(completion.finish, completion.stop)
        return body

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.error_body`."""
        return error_body(error, self._request_id)

    def _write(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case PromptUsage():
                self._prompt = event
                return self._begin()
            case ReasoningDelta():
                self._thought.append(event.text)
                delta = {"type": "thinking_delta", "thinking": event.text}
                return [*self._opened("thinking"), self._delta(delta)]
            case ContentDelta():
                return [*self._opened("text"), self._delta({"type": "text_delta", "text": event.text})]
            case ToolCallBegin():
                self._call, self._arguments = event, []
                head = self._opened("thinking") if self._index < 0 else []
                return [*head, *self._closed(), *self._eager_start(event)]
            case ToolCallArguments():
                self._arguments.append(event.text)
                is_eager = self._call is not None and self._call.name in self._eager
                return [self._delta(_input_delta(event.text))] if is_eager else []
            case ToolCallEnd():
                return self._call_end()
            case Usage():
                self._usage = event
                return []
            case Finish():
                return self._finish(event)

    def _begin(self) -> list[dict[str, Any]]:
        if self._begun:
            return []
        self._begun = True
        return [{"type": "message_start", "message": self._message(usage_body(self._prompt))}]

    def _message(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._envelope.id,
            "type": "message",
            "role": "assistant",
            "model": self._envelope.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _opened(self, kind: str) -> list[dict[str, Any]]:
        """Events until a block of this kind is open."""
        if self._open == kind:
            return []
        events = [*self._begin(), *self._closed()]
        if self._index < 0 and kind != "thinking":
            events += [*self._opened("thinking"), *self._closed()]
        block: dict[str, Any] = {"type": kind, kind: ""}
        if kind == "thinking":
            block["signature"] = ""
        return [*events, *self._start(block, kind)]

    def _start(self, block: dict[str, Any], kind: str) -> list[dict[str, Any]]:
        self._index += 1
        self._open = kind
        return [{"type": "content_block_start", "index": self._index, "content_block": block}]

    def _closed(self) -> list[dict[str, Any]]:
        """Events until no block is open."""
        if self._open is None:
            return []
        events = []
        if self._open == "thinking":
            signature = signature_of("".join(self._thought))
            events.append(self._delta({"type": "signature_delta", "signature": signature}))
            self._thought = []
        self._open = None
        return [*events, {"type": "content_block_stop", "index": self._index}]

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _eager_start(self, call: ToolCallBegin) -> list[dict[str, Any]]:
        if call.name not in self._eager:
            return []
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        return self._start(block, "tool_use")

    def _call_end(self) -> list[dict[str, Any]]:
        call, arguments = self._call, "".join(self._arguments)
        assert call is not None, "a call ended that had not begun"
        self._call = None
        if self._open == "tool_use":
            return self._closed()
        block = call_block(ToolCall(id=call.id, name=call.name, arguments=arguments))
        # The input of a block that begins is empty by the format; clients put it together from the deltas.
        fragment = arguments if load_arguments(arguments) is not None else "{}"
        events = self._start({**block, "input": {}}, "tool_use")
        return [*events, self._delta(_input_delta(fragment)), *self._closed()]

    def _finish(self, event: Finish) -> list[dict[str, Any]]:
        events = [*self._begin(), *self._closed()]
        if self._index <= 0:
            # Also an answer that is nothing but thought has a text, an empty one.
            events += [*self._opened("text"), *self._closed()]
        usage = usage_body(self._usage or self._prompt)
        delta = _ending(event.reason, event.stop)
        return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def content_blocks(completion: Completion) -> list[dict[str, Any]]:
    """The blocks of a whole answer: thinking, then text, then calls."""
    signature = signature_of(completion.reasoning)
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": completion.reasoning, "signature": signature}
    ]
    if completion.content or not completion.tool_calls:
        blocks.append({"type": "text", "text": completion.content})
    return blocks + [call_block(call) for call in completion.tool_calls]


def accumulate(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The message that the events of a stream amount to.

    Raises:
        ValueError: the stream held an error, or ended before ``message_stop``.
    """
    body: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                body = {**event["message"], "content": []}
            case "content_block_start":
                body["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                _add(body["content"][event["index"]], event["delta"], inputs, event["index"])
            case "message_delta":
                body |= event["delta"]
                body["usage"] = {**body["usage"], **event["usage"]}
            case "message_stop":
                for index, text in inputs.items():
                    body["content"][index]["input"] = load_arguments(text) or {}
                return body
            case "error":
                raise ValueError(f"the stream broke off: {event['error']['message']}")
    raise ValueError("the stream ended before message_stop")


def _add(block: dict[str, Any], delta: Mapping[str, Any], inputs: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "text_delta":
            block["text"] += delta["text"]
        case "input_json_delta":
            inputs[index] = inputs.get(index, "") + delta["partial_json"]


def _input_delta(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def _ending(finish: str, stop: str | None) -> dict[str, Any]:
    reason = "stop_sequence" if stop is not None else STOP_REASONS[finish]
    return {"stop_reason": reason, "stop_sequence": stop}


def _encode(events: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(sse.encode_json(event, event=event["type"]) for event in events)
