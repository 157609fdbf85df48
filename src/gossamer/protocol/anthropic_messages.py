"""Anthropic messages to and from the one message model.

Laws (tests/protocol/test_laws.py): what is parsed, written and parsed again is the same; ids, reasoning,
signatures and the strings of arguments survive byte for byte; what has no place here is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.media import parse_anthropic_image, to_anthropic_image
from gossamer.protocol.messages import Message, Origin, Part, ToolCall
from gossamer.protocol.values import boolean, kind_of, mapping, name_of, only_keys, string

BILLING_HEADER = "x-anthropic-billing-header"
"""A system text that begins so differs in every request and says nothing to a model: it is left out, or no
two requests would share a prefix."""
RAW_INPUT = "raw_input"
"""Our own key of a ``tool_use`` block: the argument string, where ``input`` written again is another."""
_HINT = ("cache_control",)
_BLOCK_KEYS = {
    "text": {"type", "text", "citations", *_HINT},
    "thinking": {"type", "thinking", "signature", *_HINT},
    "tool_use": {"type", "id", "name", "input", RAW_INPUT, "caller", *_HINT},
    "tool_result": {"type", "tool_use_id", "content", "is_error", *_HINT},
}
_NO_PLACE = {
    "redacted_thinking": "was encrypted for another service; leave the block out",
    "document": "is not supported; send its text, or its pages as images",
    "search_result": "is not supported; send its text",
    "server_tool_use": "is a call of a tool that another service runs",
}


def dump_arguments(arguments: Any) -> str:
    """The string that an ``input`` object stands for: JSON as models of the family are shown it."""
    return json.dumps(arguments, ensure_ascii=False)


def load_arguments(arguments: str) -> dict[str, Any] | None:
    """The object that an argument string holds, None where it holds none."""
    try:
        value = json.loads(arguments, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def parse_system(tree: Any) -> tuple[Message, ...]:
    """The ``system`` field as at most one message.

    Raises:
        RequestError: no string and no array of text blocks.
    """
    if tree is None:
        return ()
    content = _texts(tree, "system")
    if isinstance(content, str):
        content = () if content.startswith(BILLING_HEADER) else content
    else:
        content = tuple(part for part in content if not part.text.startswith(BILLING_HEADER))
    origin = Origin(index=0, path="system")
    return (Message(role="system", content=_plain(content), origin=origin),) if content else ()


def parse_messages(tree: Any) -> tuple[Message, ...]:
    """The ``messages`` field; a last assistant message is one to continue.

    Raises:
        RequestError: naming the place that cannot be read.
    """
    if not isinstance(tree, list) or not tree:
        raise invalid("messages", "must be a non-empty array")
    messages: list[Message] = []
    for index, item in enumerate(tree):
        messages += _message(item, index, is_last=index == len(tree) - 1)
    return tuple(messages)


def _message(tree: Any, index: int, *, is_last: bool) -> Iterator[Message]:
    at = f"messages[{index}]"
    only_keys(mapping(tree, at), {"role", "content"}, at, "a message")
    role, content = tree.get("role"), tree.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(f"{at}.role", f"must be user, assistant or system, got {role!r:.80}")
    if not isinstance(content, str | list):
        raise invalid(f"{at}.content", f"must be a string or an array of blocks, got {kind_of(content)}")
    if role == "user":
        yield from _user(content, index, at)
    elif role == "system":
        yield Message(
            role="system",
            content=_plain(_texts(content, f"{at}.content")),
            origin=Origin(index=index, path=at),
        )
    else:
        yield _assistant(content, index, at, is_last=is_last)


def _user(content: str | list[Any], index: int, at: str) -> Iterator[Message]:
    """Results first, as the family's format has them, then what the user says besides."""
    origin = Origin(index=index, path=at)
    if isinstance(content, str):
        yield Message(role="user", content=content, origin=origin)
        return
    parts: list[Part] = []
    results = 0
    for position, block in enumerate(content):
        spot = f"{at}.content[{position}]"
        kind = _kind(block, spot)
        if kind == "tool_result":
            results += 1
            yield _result(block, index, spot)
        elif kind in ("text", "image"):
            parts.append(_part(block, kind, spot))
        else:
            raise invalid(
                f"{spot}.type", f"{kind!r:.80} {_NO_PLACE.get(kind, 'is no block of a user message')}"
            )
    if parts or not results:
        yield Message(role="user", content=_plain(tuple(parts)), origin=origin)


def _result(block: dict[str, Any], index: int, at: str) -> Message:
    only_keys(block, _BLOCK_KEYS["tool_result"], at, "a tool_result block")
    content = block.get("content")
    if content is None:
        content = ""
    elif isinstance(content, list):
        parts = []
        for position, item in enumerate(content):
            spot = f"{at}.content[{position}]"
            kind = _kind(item, spot)
            if kind not in ("text", "image"):
                raise invalid(f"{spot}.type", f"{kind!r:.80} {_NO_PLACE.get(kind, 'cannot be in a result')}")
            parts.append(_part(item, kind, spot))
        content = _plain(tuple(parts))
    elif not isinstance(content, str):
        raise invalid(f"{at}.content", f"must be a string or an array of blocks, got {kind_of(content)}")
    return Message(
        role="tool",
        content=content,
        tool_call_id=name_of(block, "tool_use_id", at),
        is_error=boolean(block, "is_error", False, at=f"{at}."),
        origin=Origin(index=index, path=at, result_id="tool_use_id"),
    )


def _assistant(content: str | list[Any], index: int, at: str, *, is_last: bool) -> Message:
    origin = Origin(index=index, path=at, calls="content", reasoning="content")
    if isinstance(content, str):
        return Message(role="assistant", content=content, partial=is_last, origin=origin)
    thoughts: list[str] = []
    signature: str | None = None
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for position, block in enumerate(content):
        spot = f"{at}.content[{position}]"
        kind = _kind(block, spot)
        if kind == "thinking":
            only_keys(block, _BLOCK_KEYS[kind], spot, "a thinking block")
            thoughts.append(string(block, "thinking", spot))
            signature = string(block, "signature", spot) if block.get("signature") is not None else signature
        elif kind == "text":
            parts.append(_part(block, kind, spot))
        elif kind == "tool_use":
            calls.append(_call(block, spot))
        else:
            problem = _NO_PLACE.get(kind, "is no block of an assistant message")
            raise invalid(f"{spot}.type", f"{kind!r:.80} {problem}")
    if len({call.id for call in calls}) < len(calls):
        raise invalid(f"{at}.content", "holds two tool_use blocks with one id")
    return Message(
        role="assistant",
        content=_plain(tuple(parts)) if parts or not calls else None,
        reasoning="".join(thoughts) if thoughts else None,
        tool_calls=tuple(calls),
        partial=is_last and not calls,
        signature=signature,
        origin=origin,
    )


def _call(block: dict[str, Any], at: str) -> ToolCall:
    only_keys(block, _BLOCK_KEYS["tool_use"], at, "a tool_use block")
    value = block.get("input")
    if not isinstance(value, dict):
        raise invalid(f"{at}.input", f"must be an object, got {kind_of(value)}")
    arguments = dump_arguments(value)
    if block.get(RAW_INPUT) is not None:
        raw = string(block, RAW_INPUT, at)
        if (load_arguments(raw) or {}) != value:
            raise invalid(
                f"{at}.{RAW_INPUT}", "is not the text of input; leave it out where you change input"
            )
        arguments = raw
    return ToolCall(id=name_of(block, "id", at), name=name_of(block, "name", at), arguments=arguments)


def _kind(block: Any, at: str) -> str:
    kind = mapping(block, at).get("type")
    if not isinstance(kind, str):
        raise invalid(f"{at}.type", f"must be a string, got {kind_of(kind)}")
    return kind


def _part(block: dict[str, Any], kind: str, at: str) -> Part:
    if kind == "image":
        return parse_anthropic_image(block, at)
    only_keys(block, _BLOCK_KEYS["text"], at, "a text block")
    return Part(kind="text", text=string(block, "text", at))


def _texts(tree: Any, at: str) -> str | tuple[Part, ...]:
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, list):
        raise invalid(at, f"must be a string or an array of text blocks, got {kind_of(tree)}")
    parts = []
    for position, block in enumerate(tree):
        spot = f"{at}[{position}]"
        kind = _kind(block, spot)
        if kind != "text":
            raise invalid(f"{spot}.type", f"must be text, got {kind!r:.80}")
        parts.append(_part(block, kind, spot))
    return tuple(parts)


def _plain(content: str | tuple[Part, ...]) -> str | tuple[Part, ...]:
    """One block of text is that text: formats that have strings and blocks mean the same by both."""
    if isinstance(content, tuple) and len(content) == 1 and content[0].kind == "text":
        return content[0].text
    return content


def call_block(call: ToolCall) -> dict[str, Any]:
    """A ``tool_use`` block; with `RAW_INPUT` where ``input`` alone would not give the string back."""
    value = load_arguments(call.arguments) or {}
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": value}
    if dump_arguments(value) != call.arguments:
        block[RAW_INPUT] = call.arguments
    return block


def write_messages(messages: Sequence[Message]) -> dict[str, Any]:
    """``system`` and ``messages`` that say the same; `parse_system` and `parse_messages` undo it.

    Raises:
        RequestError: a message holds something that the format has no place for.
    """
    body: dict[str, Any] = {}
    written: list[dict[str, Any]] = []
    previous: Message | None = None
    for index, message in enumerate(messages):
        _check_writable(message, index, is_last=index == len(messages) - 1)
        if message.role == "system" and index == 0:
            body["system"] = _content_blocks(message)
        elif message.role == "tool":
            if previous is None or previous.role != "tool":
                written.append({"role": "user", "content": []})
            written[-1]["content"].append(_result_block(message))
        elif message.role == "assistant":
            written.append({"role": "assistant", "content": _assistant_blocks(message)})
        else:
            written.append({"role": message.role, "content": _content_blocks(message)})
        previous = message
    body["messages"] = written
    return body


def _check_writable(message: Message, index: int, *, is_last: bool) -> None:
    for field, problem in (
        ("name", "names have no place" if message.name is not None else None),
        ("tools", "tools of a message have no place" if message.tools else None),
        ("partial", "a last assistant message is continued"),
    ):
        if field == "partial":
            ends_open = is_last and message.role == "assistant" and not message.tool_calls
            if message.partial or not ends_open:
                continue
        if problem is not None:
            at = f"messages[{index}].{field}"
            raise RequestError(f"{at}: {problem} in the Anthropic format", param=at)


def _content_blocks(message: Message) -> str | list[dict[str, Any]]:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    return [
        {"type": "text", "text": part.text} if part.kind == "text" else to_anthropic_image(part)
        for part in message.content
    ]


def _assistant_blocks(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.reasoning is not None:
        blocks.append(
            {"type": "thinking", "thinking": message.reasoning, "signature": message.signature or ""}
        )
    content = _content_blocks(message)
    if isinstance(content, list):
        blocks += content
    elif message.content is not None:
        blocks.append({"type": "text", "text": content})
    return blocks + [call_block(call) for call in message.tool_calls]


def _result_block(message: Message) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": _content_blocks(message),
    }
    if message.is_error:
        block["is_error"] = True
    return block
