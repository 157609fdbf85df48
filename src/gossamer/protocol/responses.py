"""Answers in OpenAI's Responses format: whole, and as the numbered events of a stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gossamer.protocol import sse
from gossamer.protocol.completion import Completion
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
from gossamer.protocol.messages import ToolCall
from gossamer.protocol.responses_items import CUSTOM_FIELD, call_item, seal
from gossamer.protocol.wire import Envelope

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete"}


def usage_body(usage: Usage) -> dict[str, Any]:
    """The usage object of the format."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def logprobs_body(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Log-probabilities of a text; a control token, which has no bytes, is listed with none."""
    return [{**_token(t), "top_logprobs": [_token(other) for other in t.top]} for t in tokens]


def _token(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.raw or b"")}


class ResponsesWire:
    """One answer; see `gossamer.protocol.wire.Wire`.

    Every answer begins with a reasoning item, an empty one where the model thought nothing: the client has
    to bring it back with its tool calls.

    Args:
        envelope: Its identity.
        echo: Fields of the response that repeat the request.
        custom: Names of the tools that take free text.
    """

    def __init__(
        self, envelope: Envelope, *, echo: Mapping[str, Any] | None = None, custom: Collection[str] = ()
    ):
        self._envelope = envelope
        self._echo = dict(echo or {})
        self._custom = custom
        self._sequence = 0
        self._begun = False
        self._items: list[dict[str, Any]] = []
        self._open: str | None = None
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._call: ToolCallBegin | None = None
        self._usage: Usage | None = None

    def write(self, event: Event) -> bytes:
        """See `gossamer.protocol.wire.Wire.write`."""
        return self._encode(self._write(event))

    def ping(self) -> bytes:
        """That it is in progress: clients of this format restart their clocks at data only."""
        progress = {"type": "response.in_progress", "response": self._response("in_progress")}
        return self._encode(self._begin() or [progress])

    def end(self) -> bytes:
        """Nothing: the last event of a finished answer was written with its `Finish`."""
        return b""

    def fail(self, error: ApiError) -> bytes:
        """See `gossamer.protocol.wire.Wire.fail`."""
        response = self._response("failed")
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        response["error"] = {"code": code, "message": error.message}
        return self._encode([*self._begin(), {"type": "response.failed", "response": response}])

    def whole(self, completion: Completion) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.whole`."""
        items = [self._reasoning_item(completion.reasoning, "completed")]
        if completion.content or not completion.tool_calls:
            part = _text_part(completion.content, completion.logprobs)
            items.append(self._message_item(1, [part], "completed"))
        for call in completion.tool_calls:
            named = ToolCall(
                id=call.id, name=call.name, arguments=call.arguments, custom=call.name in self._custom
            )
            items.append(self._call_item(len(items), named, "completed"))
        return self._ended(items, completion.finish, completion.usage)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """See `gossamer.protocol.wire.Wire.error_body`."""
        return error.body()

    def _encode(self, events: Iterable[dict[str, Any]]) -> bytes:
        data = []
        for event in events:
            data.append(sse.encode_json({**event, "sequence_number": self._sequence}, event=event["type"]))
            self._sequence += 1
        return b"".join(data)

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": self._envelope.id,
            "object": "response",
            "created_at": self._envelope.created,
            "model": self._envelope.model,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            **self._echo,
        }

    def _ended(self, items: list[dict[str, Any]], finish: str, usage: Usage | None) -> dict[str, Any]:
        reason = _INCOMPLETE.get(finish)
        body = self._response("completed" if reason is None else "incomplete")
        body["output"] = items
        body["incomplete_details"] = None if reason is None else {"reason": reason}
        body["usage"] = None if usage is None else usage_body(usage)
        return body

    def _write(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case PromptUsage():
                return self._begin()
            case ReasoningDelta():
                opened = self._opened("reasoning")
                self._text.append(event.text)
                return [*opened, self._delta("response.reasoning_text.delta", event.text, content_index=0)]
            case ContentDelta():
                opened = self._opened("message")
                self._text.append(event.text)
                self._logprobs += event.logprobs
                delta = self._delta("response.output_text.delta", event.text, content_index=0)
                return [*opened, {**delta, "logprobs": logprobs_body(event.logprobs)}]
            case ToolCallBegin():
                events = [*self._thought(), *self._closed()]
                self._call = event
                return [*events, *self._start("call", self._call_of(event, ""), "in_progress")]
            case ToolCallArguments():
                self._text.append(event.text)
                if self._is_custom:
                    return []
                return [self._delta("response.function_call_arguments.delta", event.text)]
            case ToolCallEnd():
                return self._closed()
            case Usage():
                self._usage = event
                return []
            case Finish():
                return self._finish(event)

    @property
    def _is_custom(self) -> bool:
        return self._call is not None and self._call.name in self._custom

    def _begin(self) -> list[dict[str, Any]]:
        if self._begun:
            return []
        self._begun = True
        response = self._response("in_progress")
        return [{"type": kind, "response": response} for kind in ("response.created", "response.in_progress")]

    def _thought(self) -> list[dict[str, Any]]:
        """Events until there is a reasoning item, be it empty."""
        if self._items or self._open is not None:
            return self._begin()
        return [*self._begin(), *self._start("reasoning", None, "in_progress")]

    def _opened(self, kind: str) -> list[dict[str, Any]]:
        """Events until an item of this kind is open for text."""
        if self._open == kind:
            return [] if self._text or kind == "message" else [self._part_event("added", "")]
        events = self._thought() if kind == "message" else self._begin()
        events += [*self._closed(), *self._start(kind, None, "in_progress")]
        return [*events, self._part_event("added", "")]

    def _start(self, kind: str, call: ToolCall | None, status: str) -> list[dict[str, Any]]:
        self._open, self._text, self._logprobs = kind, [], []
        item = self._item(status, "", call)
        return [{"type": "response.output_item.added", "output_index": len(self._items), "item": item}]

    def _closed(self) -> list[dict[str, Any]]:
        """Events until no item is open."""
        if self._open is None:
            return []
        text, index = "".join(self._text), len(self._items)
        call = None if self._call is None else self._call_of(self._call, text)
        item = self._item("completed", text, call)
        place = {"item_id": item["id"], "output_index": index}
        events: list[dict[str, Any]] = []
        if self._open == "reasoning" and text:
            done = {"type": "response.reasoning_text.done", **place, "content_index": 0, "text": text}
            events += [done, self._part_event("done", text)]
        elif self._open == "message":
            logprobs = logprobs_body(self._logprobs)
            done = {"type": "response.output_text.done", **place, "content_index": 0, "text": text}
            events += [{**done, "logprobs": logprobs}, self._part_event("done", text)]
        elif self._open == "call":
            events += self._call_done(item, place)
        self._items.append(item)
        self._open = self._call = None
        return [*events, {"type": "response.output_item.done", "output_index": index, "item": item}]

    def _call_done(self, item: dict[str, Any], place: dict[str, Any]) -> list[dict[str, Any]]:
        if not self._is_custom:
            done = {"type": "response.function_call_arguments.done", **place}
            return [{**done, "name": item["name"], "arguments": item["arguments"]}]
        kind = "response.custom_tool_call_input"
        return [
            {"type": f"{kind}.delta", **place, "delta": item["input"]},
            {"type": f"{kind}.done", **place, "input": item["input"]},
        ]

    def _finish(self, event: Finish) -> list[dict[str, Any]]:
        events = [*self._thought(), *self._closed()]
        if len(self._items) == 1:
            # Also an answer that is nothing but thought has a text, an empty one.
            events += [*self._opened("message"), *self._closed()]
        response = self._ended(self._items, event.reason, self._usage)
        return [*events, {"type": _ENDS[response["status"]], "response": response}]

    def _delta(self, kind: str, text: str, **more: Any) -> dict[str, Any]:
        index = len(self._items)
        return {"type": kind, "item_id": self._item_id(index), "output_index": index, "delta": text, **more}

    def _part_event(self, what: str, text: str) -> dict[str, Any]:
        index = len(self._items)
        is_text = self._open == "message"
        part = _text_part(text, self._logprobs) if is_text else {"type": "reasoning_text", "text": text}
        return {
            "type": f"response.content_part.{what}",
            "item_id": self._item_id(index),
            "output_index": index,
            "content_index": 0,
            "part": part,
        }

    def _item_id(self, index: int) -> str:
        return f"item_{self._envelope.id}_{index}"

    def _call_of(self, call: ToolCallBegin, arguments: str) -> ToolCall:
        custom = call.name in self._custom
        if custom and not arguments:
            arguments = f'{{"{CUSTOM_FIELD}": ""}}'
        return ToolCall(id=call.id, name=call.name, arguments=arguments, custom=custom)

    def _item(self, status: str, text: str, call: ToolCall | None) -> dict[str, Any]:
        """The open item, with what it holds so far."""
        index = len(self._items)
        if call is not None:
            return self._call_item(index, call, status)
        if self._open == "reasoning":
            return self._reasoning_item(text, status)
        done = status == "completed"
        return self._message_item(index, [_text_part(text, self._logprobs)] if done else [], status)

    def _reasoning_item(self, reasoning: str, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "reasoning", "id": self._item_id(0), "summary": [], "status": status}
        if status == "completed":
            item["content"] = [{"type": "reasoning_text", "text": reasoning}] if reasoning else []
            item["encrypted_content"] = seal(reasoning)
        return item

    def _message_item(self, index: int, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
        item = {"type": "message", "id": self._item_id(index), "role": "assistant"}
        return {**item, "content": content, "status": status}

    def _call_item(self, index: int, call: ToolCall, status: str) -> dict[str, Any]:
        item = {**call_item(call), "id": self._item_id(index)}
        return item if call.custom else {**item, "status": status}


def _text_part(text: str, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs_body(logprobs)}


def accumulate(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The response that a stream's deltas amount to; its items are put together from the pieces alone.

    Raises:
        ValueError: the pieces contradict the items that the stream ended with, or it did not end.
    """
    texts: dict[int, str] = {}
    items: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"]
        if kind.endswith(".delta"):
            index = event["output_index"]
            texts[index] = texts.get(index, "") + event["delta"]
        elif kind == "response.output_item.done":
            if texts.get(event["output_index"], "") != _held(event["item"]):
                raise ValueError(f"item {event['output_index']} is not what its deltas said")
            items.append(event["item"])
        elif kind in _ENDS.values():
            if items != event["response"]["output"]:
                raise ValueError("the items are not what the response ended with")
            return dict(event["response"])
    raise ValueError("the stream ended before its response did")


def _held(item: Mapping[str, Any]) -> str:
    """The text of an item of any kind."""
    if item["type"] in ("message", "reasoning"):
        return "".join(part["text"] for part in item["content"])
    return item["arguments"] if item["type"] == "function_call" else item["input"]
