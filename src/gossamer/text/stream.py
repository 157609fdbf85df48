"""Reads the model's output, token id by token id, as reasoning, content and tool calls.

Control ids alone are structure; text that looks like a marker is text. The parser accepts whatever a model
may write: what is left open is closed by what opens around it, markers that fit nowhere are passed over,
and a stream may end at any token.
"""

import codecs
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gossamer.text import xtml
from gossamer.text.arguments import ArgumentWriter, declared_types
from gossamer.text.tokenizer import Tokenizer
from gossamer.text.xtml import ControlIds

Kind = Literal["reasoning", "content", "tool_call_begin", "tool_call_arguments", "tool_call_end"]
Start = Literal["think", "response", "message"]
Place = Literal["message", "think", "response", "tools", "call", "argument", "json", "done"]
IdFactory = Callable[[str, int], str]

_CHANNELS: Mapping[str, Place] = {"think": "think", "response": "response", "tools": "tools"}
_DEPTH: Mapping[str, int] = {
    "message": 0,
    "think": 1,
    "response": 1,
    "tools": 1,
    "call": 2,
    "argument": 3,
    "json": 3,
}


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What is new in the message.

    Attributes:
        kind: reasoning and content carry `text`; tool_call_begin `index`, `id` and `name`;
            tool_call_arguments `index` and `text` (a piece of the JSON text); tool_call_end `index`.
        index: which call, from 0.
    """

    kind: Kind
    text: str = ""
    index: int = 0
    id: str = ""
    name: str = ""


def random_id(name: str, index: int) -> str:
    """Return an opaque call id that will not repeat."""
    return f"call_{secrets.token_hex(12)}"


def position_id(name: str, index: int) -> str:
    """Return the deterministic style ``name:index``; it repeats from one message to the next."""
    return f"{name}:{index}"


class ChatParser:
    """Turns the ids of one assistant message into deltas.

    The deltas joined do not depend on how the ids are split over `feed` calls.

    Args:
        tokenizer: the vocabulary.
        tools: declared tools; their schemas decide about argument values whose type is missing.
        start: the channel that the prompt left open (`Rendered.start`).
        id_factory: makes a call's id from its tool name and its index.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        start: Start = "think",
        id_factory: IdFactory = random_id,
    ):
        if start not in ("think", "response", "message"):
            raise ValueError(f"start must be think, response or message, got {start!r}")
        self._tokenizer = tokenizer
        self._control = ControlIds.of(tokenizer)
        self._declared = declared_types(tools)
        self._id_factory = id_factory
        self._place: Place = start
        self._marker: bytearray | None = None
        self._marker_opens = False
        self._run = bytearray()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._between = True
        self._call: ArgumentWriter | None = None
        self._num_calls = 0
        self._truncated: bool | None = None
        self._out: list[Delta] = []

    @property
    def ended(self) -> bool:
        """Whether the message is over: it was closed, or `finish` was called."""
        return self._place == "done"

    @property
    def in_content(self) -> bool:
        """Whether ordinary text that comes next is part of the visible answer."""
        return self._place == "response" and self._marker is None

    @property
    def num_calls(self) -> int:
        """How many calls have begun."""
        return self._num_calls

    @property
    def truncated(self) -> bool:
        """Whether the stream ended before the message did; False until then."""
        return bool(self._truncated)

    def feed(self, token_ids: Iterable[int]) -> list[Delta]:
        """Take the next ids; return what they add. Ids after the end of the message are ignored.

        Raises:
            TokenizerError: an id outside the vocabulary.
        """
        for token_id in token_ids:
            if self._place == "done":
                break
            if self._tokenizer.is_special(token_id):
                self._special(token_id)
            elif self._marker is not None:
                self._marker += self._tokenizer.token_bytes(token_id)
            else:
                self._run += self._tokenizer.token_bytes(token_id)
        self._flush()
        return self._take()

    def finish(self, *, stopped: bool = False) -> list[Delta]:
        """End the stream; close an open call with what is there. A second call returns nothing.

        Args:
            stopped: the engine met an end token that it did not pass on, so nothing was cut off.
        """
        if self._place != "done":
            self._end(truncated=not stopped)
        return self._take()

    def finish_reason(self) -> Literal["stop", "length", "tool_calls"] | None:
        """Return the OpenAI finish reason, or None while the message is not over."""
        if self._place != "done":
            return None
        if self._truncated:
            return "length"
        return "tool_calls" if self._num_calls else "stop"

    def _take(self) -> list[Delta]:
        out, self._out = self._out, []
        return out

    def _emit(self, kind: Kind, text: str) -> None:
        if text:
            self._out.append(Delta(kind=kind, text=text, index=self._call_index()))

    def _call_index(self) -> int:
        return max(self._num_calls - 1, 0) if self._call is not None else 0

    def _special(self, token_id: int) -> None:
        control = self._control
        if token_id in (control.end_of_msg, control.eos):
            self._end(truncated=False)
        elif token_id in (control.open, control.close):
            # A marker that never got its separator is dropped with what it held.
            self._flush(final=True)
            self._marker = bytearray()
            self._marker_opens = token_id == control.open
        elif token_id == control.sep and self._marker is not None:
            marker = xtml.parse_marker(self._marker.decode("utf-8", "replace"))
            self._marker = None
            if self._marker_opens:
                self._open(marker.tag, marker.attributes)
            else:
                self._close(marker.tag)

    def _flush(self, *, final: bool = False) -> None:
        if self._run or final:
            text = self._utf8.decode(bytes(self._run), final=final)
            self._run.clear()
            if text:
                self._text(text)

    def _text(self, text: str) -> None:
        if self._place == "think":
            self._emit("reasoning", text)
        elif self._place == "response":
            self._emit("content", text)
        elif self._place in ("argument", "json"):
            if self._call is not None:
                self._emit("tool_call_arguments", self._call.text(text))
        elif self._place == "message":
            self._stray(text)

    def _stray(self, text: str) -> None:
        """Text between channels is content, except the white space that leads it."""
        if self._between:
            text = text.lstrip()
        if text:
            self._between = False
            self._emit("content", text)

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "message":
            self._leave(1)
        elif tag in _CHANNELS:
            self._leave(1)
            self._place = _CHANNELS[tag]
        elif tag == "call" and self._place != "think":
            self._leave(2 if _DEPTH[self._place] >= 2 or self._place == "tools" else 1)
            self._begin_call(attributes)
        elif tag in ("argument", "json") and _DEPTH[self._place] >= 2:
            self._leave(3)
            self._place = "argument" if tag == "argument" else "json"
            if self._call is not None:
                fragment = (
                    self._call.open_argument(attributes.get("key"), attributes.get("type"))
                    if tag == "argument"
                    else self._call.open_raw()
                )
                self._emit("tool_call_arguments", fragment)

    def _begin_call(self, attributes: Mapping[str, str]) -> None:
        self._place = "call"
        name = attributes.get("tool")
        if not name:
            self._call = None
            return
        index = self._num_calls
        self._num_calls += 1
        self._call = ArgumentWriter(self._declared.get(name, {}))
        call_id = self._id_factory(name, index)
        self._out.append(Delta(kind="tool_call_begin", index=index, id=call_id, name=name))

    def _close(self, tag: str) -> None:
        if tag == "message":
            self._end(truncated=False)
        elif tag == self._place or (tag in ("tools", "call") and _DEPTH[self._place] > _DEPTH[tag]):
            self._leave(_DEPTH[tag])

    def _leave(self, depth: int, *, truncated: bool = False) -> None:
        """Close every open place at this depth or below it."""
        while _DEPTH[self._place] >= depth and self._place != "message":
            if self._place in ("argument", "json"):
                self._place = "call"
                if self._call is not None:
                    self._emit("tool_call_arguments", self._call.close_value(truncated=truncated))
            elif self._place == "call":
                self._place = "tools"
                if self._call is not None:
                    self._emit("tool_call_arguments", self._call.close(truncated=truncated))
                    self._out.append(Delta(kind="tool_call_end", index=self._call_index()))
                    self._call = None
            else:
                self._place = "message"
                self._between = True

    def _end(self, *, truncated: bool) -> None:
        if truncated:
            # Half a character at the cut is not text.
            self._flush()
        else:
            self._flush(final=True)
        self._marker = None
        self._leave(1, truncated=truncated)
        self._place = "done"
        self._truncated = truncated


def accumulate(deltas: Iterable[Delta]) -> dict[str, Any]:
    """Join deltas to one assistant message in the OpenAI shape.

    `reasoning_content` and `content` are always there, `tool_calls` only if there are any.
    """
    reasoning: list[str] = []
    content: list[str] = []
    calls: list[dict[str, Any]] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        if delta.kind == "reasoning":
            reasoning.append(delta.text)
        elif delta.kind == "content":
            content.append(delta.text)
        elif delta.kind == "tool_call_begin":
            calls.append({"id": delta.id, "type": "function", "function": {"name": delta.name}})
            arguments.append([])
        elif delta.kind == "tool_call_arguments":
            arguments[delta.index].append(delta.text)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(content),
        "reasoning_content": "".join(reasoning),
    }
    for call, fragments in zip(calls, arguments, strict=True):
        call["function"]["arguments"] = "".join(fragments)
    if calls:
        message["tool_calls"] = calls
    return message


def parse(
    token_ids: Iterable[int],
    *,
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]] | None = None,
    start: Start = "think",
    id_factory: IdFactory = random_id,
) -> dict[str, Any]:
    """Return the whole message of a finished or truncated output; see `ChatParser` and `accumulate`."""
    parser = ChatParser(tokenizer, tools, start=start, id_factory=id_factory)
    return accumulate([*parser.feed(token_ids), *parser.finish()])
