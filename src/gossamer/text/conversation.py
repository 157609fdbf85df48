"""Checks a conversation before it is rendered, so that each mistake is named by message index and key."""

from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.text import xtml
from gossamer.text.errors import ChatFormatError

ROLES = ("system", "user", "assistant", "tool")
EFFORTS = ("low", "medium", "high", "max")
TOOL_CHOICES = ("auto", "none", "required")
RESPONSE_FORMATS = ("text", "json_object", "json_schema")
IMAGE_PARTS = ("image", "image_url")


def check(
    conversation: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None,
    reasoning_effort: str | None,
    tool_choice: Any,
    response_format: Mapping[str, Any] | None,
) -> None:
    """Raise ChatFormatError for the first thing the chat format cannot express."""
    if isinstance(conversation, str | bytes) or not isinstance(conversation, Sequence):
        raise ChatFormatError(f"messages: expected a list, got {type(conversation).__name__}")
    if reasoning_effort is not None and reasoning_effort not in EFFORTS:
        raise ChatFormatError(f"reasoning_effort: expected one of {EFFORTS}, got {reasoning_effort!r}")
    names: dict[str, str] = {}
    _check_tools(tools, "tools", names)
    for index, message in enumerate(conversation):
        where = f"messages[{index}]"
        _check_message(message, where, names)
        if message.get("partial") and index != len(conversation) - 1:
            raise ChatFormatError(f"{where}.partial: only the last message can be partial")
    _check_tool_choice(tool_choice, has_tools=bool(names))
    _check_response_format(response_format)


def _check_message(message: Any, where: str, names: dict[str, str]) -> None:
    if not isinstance(message, Mapping):
        raise ChatFormatError(f"{where}: expected an object, got {type(message).__name__}")
    role = message.get("role")
    if role not in ROLES:
        raise ChatFormatError(f"{where}.role: expected one of {ROLES}, got {role!r}")
    _check_content(message.get("content"), f"{where}.content")
    for key in ("name", "tool", "reasoning_content", "reasoning", "tool_call_id"):
        if not isinstance(message.get(key, ""), str | None):
            raise ChatFormatError(f"{where}.{key}: expected text, got {type(message[key]).__name__}")
    if not isinstance(message.get("partial", False), bool | None):
        raise ChatFormatError(f"{where}.partial: expected true or false, got {message['partial']!r}")
    if message.get("tools") is not None:
        _check_dynamic_tools(message, where, names)
    if role == "assistant":
        _check_tool_calls(message, where)
    elif message.get("tool_calls"):
        raise ChatFormatError(f"{where}.tool_calls: only an assistant message has tool calls, not {role}")
    elif message.get("partial"):
        raise ChatFormatError(f"{where}.partial: only an assistant message can be partial, not {role}")


def _check_dynamic_tools(message: Mapping[str, Any], where: str, names: dict[str, str]) -> None:
    if message["role"] != "system":
        raise ChatFormatError(
            f"{where}.tools: only a system message may declare tools, not {message['role']}"
        )
    if message["tools"] and message.get("content"):
        raise ChatFormatError(
            f"{where}.content: a message with tools has no content of its own; send it as another message"
        )
    _check_tools(message["tools"], f"{where}.tools", names)


def _check_content(content: Any, where: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise ChatFormatError(f"{where}: expected text or a list of parts, got {type(content).__name__}")
    for index, part in enumerate(content):
        spot = f"{where}[{index}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            if not isinstance(part.get("text"), str):
                raise ChatFormatError(f"{spot}.text: expected text, got {type(part.get('text')).__name__}")
        elif kind not in IMAGE_PARTS:
            raise ChatFormatError(f"{spot}.type: expected one of {('text', *IMAGE_PARTS)}, got {kind!r}")


def _check_tool_calls(message: Mapping[str, Any], where: str) -> None:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise ChatFormatError(f"{where}.tool_calls: expected a list, got {type(calls).__name__}")
    if calls and message.get("partial"):
        raise ChatFormatError(
            f"{where}.tool_calls: a partial message is left open and cannot hold tool calls"
        )
    for index, call in enumerate(calls):
        _check_call(call, f"{where}.tool_calls[{index}]")


def _check_call(call: Any, where: str) -> None:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ChatFormatError(f"{where}.function: expected an object, got {type(function).__name__}")
    if not isinstance(call.get("id", ""), str | None):
        raise ChatFormatError(f"{where}.id: expected text, got {type(call['id']).__name__}")
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise ChatFormatError(f"{where}.function.name: expected a tool name, got {name!r}")
    if isinstance(arguments, Mapping):
        if not all(isinstance(key, str) for key in arguments):
            raise ChatFormatError(f"{where}.function.arguments: keys must be text")
        _check_json(arguments, f"{where}.function.arguments")
    elif not isinstance(arguments, str | None):
        raise ChatFormatError(
            f"{where}.function.arguments: expected JSON text or an object, got {type(arguments).__name__}"
        )


def _check_tools(tools: Any, where: str, names: dict[str, str]) -> None:
    """Check declarations and add their names to `names` (name -> where it was declared)."""
    if tools is None:
        return
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ChatFormatError(f"{where}: expected a list, got {type(tools).__name__}")
    for index, tool in enumerate(tools):
        spot = f"{where}[{index}]"
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping):
            raise ChatFormatError(f"{spot}.function: expected an object, got {type(function).__name__}")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise ChatFormatError(f"{spot}.function.name: expected a tool name, got {name!r}")
        if name in names:
            raise ChatFormatError(f"{spot}.function.name: {name!r} is declared already in {names[name]}")
        names[name] = spot
        _check_json(tool, spot)


def _check_tool_choice(tool_choice: Any, *, has_tools: bool) -> None:
    if tool_choice is None:
        return
    if tool_choice not in TOOL_CHOICES:
        raise ChatFormatError(f"tool_choice: expected one of {TOOL_CHOICES}, got {tool_choice!r}")
    if tool_choice == "required" and not has_tools:
        raise ChatFormatError("tool_choice: 'required' needs at least one declared tool")


def _check_response_format(response_format: Any) -> None:
    if response_format is None:
        return
    kind = response_format.get("type") if isinstance(response_format, Mapping) else response_format
    if not isinstance(response_format, Mapping) or kind not in RESPONSE_FORMATS:
        raise ChatFormatError(f"response_format.type: expected one of {RESPONSE_FORMATS}, got {kind!r}")
    if kind != "json_schema":
        return
    wrapper = response_format.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, Mapping) else None
    if not isinstance(schema, Mapping):
        raise ChatFormatError(
            f"response_format.json_schema.schema: expected an object, got {type(schema).__name__}"
        )
    _check_json(schema, "response_format.json_schema.schema")


def _check_json(value: Any, where: str) -> None:
    try:
        xtml.compact_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatFormatError(f"{where}: not expressible as JSON ({error})") from None
