"""Items of the Responses format to and from the one message model.

An assistant's turn is several items here, reasoning, then text, then calls, and one message there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gossamer.protocol.anthropic_messages import dump_arguments, load_arguments
from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.media import parse_input_image, to_input_image
from gossamer.protocol.messages import Message, Origin, Part, ToolCall
from gossamer.protocol.values import kind_of, mapping, name_of, only_keys, string

CUSTOM_FIELD = "input"
"""The one argument of the function that stands for a tool that takes free text."""
_SEAL = "gossamer-1"
_COMMON = frozenset({"type", "id", "status"})
_KEYS = {
    "message": _COMMON | {"role", "content", "phase"},
    "reasoning": _COMMON | {"summary", "content", "encrypted_content"},
    "function_call": _COMMON | {"call_id", "name", "arguments", "caller"},
    "custom_tool_call": _COMMON | {"call_id", "name", "input", "caller"},
    "function_call_output": _COMMON | {"call_id", "output"},
    "custom_tool_call_output": _COMMON | {"call_id", "output"},
}
_TEXT_KEYS = {
    "input_text": frozenset({"type", "text"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
}


def seal(reasoning: str, signature: str | None = None) -> str:
    """Reasoning as ``encrypted_content``: opaque and checked, so that it comes back whole; not secret."""
    data = msgspec.json.encode([reasoning, signature])
    check = hashlib.sha256(data).hexdigest()[:16]
    return f"{_SEAL}.{check}.{base64.urlsafe_b64encode(data).decode()}"


def unseal(sealed: str, at: str) -> tuple[str, str | None]:
    """What `seal` was given.

    Raises:
        RequestError: it was changed, or another service made it.
    """
    head, _, rest = sealed.partition(".")
    check, _, text = rest.partition(".")
    try:
        data = base64.urlsafe_b64decode(text)
    except (binascii.Error, ValueError):
        data = b""
    if head != _SEAL or hashlib.sha256(data).hexdigest()[:16] != check:
        raise RequestError(
            f"{at} was changed or made by another service; send the reasoning item as it was returned here, "
            "or its content alone",
            param=at,
            code="invalid_encrypted_content",
        )
    reasoning, signature = msgspec.json.decode(data, type=tuple[str, str | None])
    return reasoning, signature


def parse_input(tree: Any) -> tuple[Message, ...]:
    """The ``input`` field: a user's text, or items.

    Raises:
        RequestError: naming the item that cannot be read.
    """
    if isinstance(tree, str):
        return (Message(role="user", content=tree, origin=Origin(index=0, path="input")),)
    if not isinstance(tree, list) or not tree:
        raise invalid("input", "must be a string or a non-empty array of items")
    reader = _Reader()
    for index, item in enumerate(tree):
        reader.read(mapping(item, f"input[{index}]"), index)
    return reader.messages()


class _Reader:
    """Gathers the items of one assistant's turn until something else comes."""

    def __init__(self) -> None:
        self._done: list[Message] = []
        self._turn: Message | None = None

    def messages(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self._done)

    def read(self, item: dict[str, Any], index: int) -> None:
        at = f"input[{index}]"
        kind = item.get("type", "message")
        if not isinstance(kind, str) or kind not in _KEYS:
            raise invalid(
                f"{at}.type",
                f"{kind!r:.80} is not supported; supported are {', '.join(_KEYS)}",
                code="unsupported_value",
            )
        only_keys(item, _KEYS[kind], at, f"a {kind} item")
        origin = Origin(index=index, path=at, calls="call_id", result_id="call_id", reasoning="type")
        if kind == "message":
            self._message(item, at, origin)
        elif kind == "reasoning":
            self._reasoning(item, at, origin)
        elif kind in ("function_call", "custom_tool_call"):
            self._call(item, kind, at, origin)
        else:
            self._close()
            self._done.append(_output(item, at, origin))

    def _close(self) -> None:
        if self._turn is not None:
            self._done.append(self._turn)
            self._turn = None

    def _open(self, origin: Origin) -> Message:
        if self._turn is None:
            self._turn = Message(role="assistant", origin=origin)
        return self._turn

    def _message(self, item: dict[str, Any], at: str, origin: Origin) -> None:
        role = item.get("role")
        content = _content(item.get("content"), f"{at}.content")
        if role == "assistant":
            if self._turn is not None and self._turn.content is not None:
                self._close()
            self._turn = replace(self._open(origin), content=content)
            return
        if role not in ("user", "system", "developer"):
            raise invalid(f"{at}.role", f"must be user, assistant, system or developer, got {role!r:.80}")
        self._close()
        told = "user" if role == "user" else "system"
        self._done.append(Message(role=told, content=content, origin=origin))

    def _reasoning(self, item: dict[str, Any], at: str, origin: Origin) -> None:
        reasoning, signature = _thought(item, at)
        turn = self._turn
        if turn is not None and (turn.content is not None or turn.tool_calls):
            self._close()
        turn = self._open(origin)
        self._turn = replace(
            turn, reasoning=(turn.reasoning or "") + reasoning, signature=signature or turn.signature
        )

    def _call(self, item: dict[str, Any], kind: str, at: str, origin: Origin) -> None:
        custom = kind == "custom_tool_call"
        if custom:
            arguments = dump_arguments({CUSTOM_FIELD: string(item, "input", at)})
        else:
            arguments = string(item, "arguments", at)
        call_id, name = name_of(item, "call_id", at), name_of(item, "name", at)
        turn = self._open(origin)
        if any(call.id == call_id for call in turn.tool_calls):
            raise invalid(f"{at}.call_id", f"repeats {call_id!r:.80} within one turn")
        call = ToolCall(id=call_id, name=name, arguments=arguments, custom=custom)
        # Named in errors about missing reasoning or results: the item of the first call.
        called = turn.origin if turn.tool_calls else origin
        self._turn = replace(turn, tool_calls=(*turn.tool_calls, call), origin=called)


def _thought(item: dict[str, Any], at: str) -> tuple[str, str | None]:
    shown = _texts(item.get("content"), f"{at}.content", "reasoning_text")
    sealed = item.get("encrypted_content")
    if sealed is not None:
        spot = f"{at}.encrypted_content"
        reasoning, signature = unseal(string(item, "encrypted_content", at), spot)
        if shown is not None and shown != reasoning:
            raise invalid(f"{at}.content", "differs from encrypted_content; send one of them")
        return reasoning, signature
    if shown is None:
        shown = _texts(item.get("summary"), f"{at}.summary", "summary_text")
    return shown or "", None


def _texts(tree: Any, at: str, kind: str) -> str | None:
    """The joined texts of an array of parts of one kind, None where there is none."""
    if tree is None or tree == []:
        return None
    if not isinstance(tree, list):
        raise invalid(at, f"must be an array, got {kind_of(tree)}")
    pieces = []
    for position, part in enumerate(tree):
        spot = f"{at}[{position}]"
        if mapping(part, spot).get("type") != kind:
            raise invalid(f"{spot}.type", f"must be {kind}, got {part.get('type')!r:.80}")
        pieces.append(string(part, "text", spot))
    return "".join(pieces)


def _content(tree: Any, at: str) -> str | tuple[Part, ...]:
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, list):
        raise invalid(at, f"must be a string or an array of parts, got {kind_of(tree)}")
    parts = tuple(_part(part, f"{at}[{position}]") for position, part in enumerate(tree))
    return parts[0].text if len(parts) == 1 and parts[0].kind == "text" else parts


def _part(tree: Any, at: str) -> Part:
    kind = mapping(tree, at).get("type")
    if kind == "input_image":
        return parse_input_image(tree, at)
    if not isinstance(kind, str) or kind not in _TEXT_KEYS:
        raise invalid(f"{at}.type", f"must be input_text, output_text or input_image, got {kind!r:.80}")
    only_keys(tree, _TEXT_KEYS[kind], at, f"an {kind} part")
    return Part(kind="text", text=string(tree, "text", at))


def _output(item: dict[str, Any], at: str, origin: Origin) -> Message:
    content = _content(item.get("output"), f"{at}.output")
    return Message(role="tool", content=content, tool_call_id=name_of(item, "call_id", at), origin=origin)


def call_item(call: ToolCall) -> dict[str, Any]:
    """A call as an item, without id and status."""
    if call.custom:
        value = (load_arguments(call.arguments) or {}).get(CUSTOM_FIELD)
        text = value if isinstance(value, str) else call.arguments
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": text}
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def write_input(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Items that say the same; `parse_input` undoes it.

    Raises:
        RequestError: a message holds something that the format has no place for.
    """
    items: list[dict[str, Any]] = []
    custom: frozenset[str] = frozenset()
    for index, message in enumerate(messages):
        for field, given in (
            ("name", message.name is not None),
            ("tools", bool(message.tools)),
            ("partial", message.partial),
            ("is_error", message.is_error),
        ):
            if given:
                at = f"messages[{index}].{field}"
                raise RequestError(f"{at} has no place in the Responses format", param=at)
        if message.role == "assistant":
            custom = frozenset(call.id for call in message.tool_calls if call.custom)
            items += _assistant_items(message)
        elif message.role == "tool":
            kind = "custom_tool_call_output" if message.tool_call_id in custom else "function_call_output"
            output = _written(message.content, "input_text")
            items.append({"type": kind, "call_id": message.tool_call_id, "output": output})
        else:
            content = _written(message.content, "input_text")
            items.append({"type": "message", "role": message.role, "content": content})
    return items


def _assistant_items(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if message.reasoning is not None:
        sealed = seal(message.reasoning, message.signature)
        items.append({"type": "reasoning", "summary": [], "encrypted_content": sealed})
    if message.content is not None:
        content = _written(message.content, "output_text")
        if isinstance(content, str):
            content = [{"type": "output_text", "text": content, "annotations": []}]
        items.append({"type": "message", "role": "assistant", "content": content})
    return items + [call_item(call) for call in message.tool_calls]


def _written(content: str | tuple[Part, ...] | None, kind: str) -> str | list[dict[str, Any]]:
    if content is None or isinstance(content, str):
        return content or ""
    return [
        {"type": kind, "text": part.text} if part.kind == "text" else to_input_image(part) for part in content
    ]
