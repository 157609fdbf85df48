"""Conversation messages as values, parsed from and written to OpenAI JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.tools import parse_tools
from gossamer.protocol.values import boolean
from gossamer.protocol.values import kind_of as _kind
from gossamer.protocol.values import optional_string as _optional_string

Role = Literal["system", "user", "assistant", "tool"]

# What a client echoes from a response although it says nothing when empty.
_EMPTY_ECHOES = ("refusal", "audio", "function_call", "annotations")
# Shown to clients that send another shape: several are in use, and none can be read for certain.
_CALL_FORM = (
    'the form is {"id": "f:0", "type": "function", "function": {"name": "f", "arguments": "{\\"x\\": 1}"}}'
)
_KEYS: dict[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name", "tools"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {
            "role",
            "content",
            "name",
            "reasoning_content",
            "reasoning",
            "reasoning_signature",
            "tool_calls",
            "partial",
            *_EMPTY_ECHOES,
        }
    ),
    "tool": frozenset({"role", "content", "tool_call_id", "name", "is_error"}),
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One content part.  ``text`` for text; ``media`` keeps an image or video part as it was sent."""

    kind: Literal["text", "image_url", "video_url"]
    text: str = ""
    media: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's shape of the part."""
        return {"type": "text", "text": self.text} if self.media is None else dict(self.media)


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call the assistant made; ``arguments`` is kept as the very string that was sent.

    ``custom``: the client knows the tool as one that takes free text (Responses), which stands in
    ``arguments`` as the member ``input``.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's shape of the call."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a message stood in the request that it came from, for errors that are found later.

    ``index`` counts in the client's own array, ``path`` leads to the message, and the other three name
    the fields as the client's format does.
    """

    index: int
    path: str
    calls: str = "tool_calls"
    result_id: str = "tool_call_id"
    reasoning: str = "reasoning_content"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message.  ``reasoning`` is None when the client sent none, which is not the same as "".

    ``signature`` is what an Anthropic client was given with the reasoning, kept for giving back;
    ``is_error`` says that a tool's result is a failure.  Neither changes the prompt.
    """

    role: Role
    content: str | tuple[Part, ...] | None = None
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    partial: bool = False
    signature: str | None = None
    is_error: bool = False
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The content's text, parts joined."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "".join(part.text for part in self.content)

    def to_dict(self) -> dict[str, Any]:
        """OpenAI's shape of the message; absent fields are left out."""
        tree: dict[str, Any] = {"role": self.role}
        if self.content is not None:
            content = self.content
            tree["content"] = content if isinstance(content, str) else [part.to_dict() for part in content]
        for key, value in (
            ("name", self.name),
            ("reasoning_content", self.reasoning),
            ("reasoning_signature", self.signature),
            ("tool_call_id", self.tool_call_id),
        ):
            if value is not None:
                tree[key] = value
        if self.tool_calls:
            tree["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tools:
            tree["tools"] = [dict(tool) for tool in self.tools]
        if self.partial:
            tree["partial"] = True
        if self.is_error:
            tree["is_error"] = True
        return tree


def parse_message(tree: Any, index: int, names: set[str]) -> Message:
    """One message of a request.

    Args:
        tree: The decoded JSON of the message.
        index: Its place in ``messages``, named in errors.
        names: Function names declared so far; dynamic tools add theirs.

    Raises:
        RequestError: with ``param`` naming the place, e.g. ``messages[3].tool_calls[0].id``.
    """
    at = f"messages[{index}]"
    if not isinstance(tree, dict):
        raise invalid(at, f"must be an object, got {_kind(tree)}")
    role = tree.get("role")
    if role == "developer":
        role = "system"
    if not isinstance(role, str) or role not in _KEYS:
        raise invalid(f"{at}.role", f"must be system, developer, user, assistant or tool, got {role!r:.80}")
    for key, value in tree.items():
        if key not in _KEYS[role] and value is not None:
            raise invalid(f"{at}.{key}", f"is not a field of a {role} message")
    name = _optional_string(tree, "name", at)
    origin = Origin(index=index, path=at)
    if role == "system":
        return _system(tree, at, name, names, origin)
    if role == "user":
        content = _content(tree.get("content"), at)
        if content is None:
            raise invalid(f"{at}.content", "is missing")
        return Message(role="user", content=content, name=name, origin=origin)
    if role == "tool":
        return _tool(tree, at, name, origin)
    return _assistant(tree, at, name, origin)


def _system(tree: dict[str, Any], at: str, name: str | None, names: set[str], origin: Origin) -> Message:
    content = _content(tree.get("content"), at)
    if tree.get("tools") is None:
        if content is None:
            raise invalid(f"{at}.content", "is missing")
        return Message(role="system", content=content, name=name, origin=origin)
    if content:
        raise RequestError(
            f"{at} declares tools and has content; send the content as a message of its own",
            param=f"{at}.content",
        )
    tools = parse_tools(tree["tools"], f"{at}.tools", names)
    if not tools:
        raise invalid(f"{at}.tools", "is empty")
    return Message(role="system", name=name, tools=tools, origin=origin)


def _tool(tree: dict[str, Any], at: str, name: str | None, origin: Origin) -> Message:
    call_id = _optional_string(tree, "tool_call_id", at)
    if not call_id:
        raise invalid(f"{at}.tool_call_id", "is missing")
    content = _content(tree.get("content"), at)
    if content is None:
        raise invalid(f"{at}.content", "is missing")
    return Message(
        role="tool",
        content=content,
        name=name,
        tool_call_id=call_id,
        is_error=boolean(tree, "is_error", False, at=f"{at}."),
        origin=origin,
    )


def _assistant(tree: dict[str, Any], at: str, name: str | None, origin: Origin) -> Message:
    for key in _EMPTY_ECHOES:
        if tree.get(key):
            raise invalid(f"{at}.{key}", "is not supported", code="unsupported_parameter")
    reasoning = _optional_string(tree, "reasoning_content", at)
    other = _optional_string(tree, "reasoning", at)
    if reasoning is not None and other is not None and reasoning != other:
        raise RequestError(
            f"{at} has both reasoning_content and reasoning, and they differ; send one",
            param=f"{at}.reasoning",
        )
    if reasoning is None:
        reasoning = other
    partial = tree.get("partial")
    if partial is not None and not isinstance(partial, bool):
        raise invalid(f"{at}.partial", f"must be true or false, got {_kind(partial)}")
    calls = _tool_calls(tree.get("tool_calls"), at)
    content = _content(tree.get("content"), at)
    if content is None and reasoning is None and not calls:
        raise RequestError(
            f"{at} is empty: an assistant message has content or tool_calls", param=f"{at}.content"
        )
    if partial and calls:
        raise RequestError(
            f"{at} is partial and has tool_calls; only content can be continued", param=f"{at}.partial"
        )
    return Message(
        role="assistant",
        content=content,
        name=name,
        reasoning=reasoning,
        tool_calls=calls,
        partial=bool(partial),
        signature=_optional_string(tree, "reasoning_signature", at),
        origin=origin,
    )


def _tool_calls(tree: Any, at: str) -> tuple[ToolCall, ...]:
    if tree is None:
        return ()
    if not isinstance(tree, list):
        raise invalid(f"{at}.tool_calls", f"must be an array, got {_kind(tree)}")
    calls = tuple(_tool_call(item, f"{at}.tool_calls[{position}]") for position, item in enumerate(tree))
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise invalid(f"{at}.tool_calls", f"repeats the id {call.id!r:.80}")
        seen.add(call.id)
    return calls


def _tool_call(tree: Any, at: str) -> ToolCall:
    if not isinstance(tree, dict):
        raise invalid(at, f"must be an object, got {_kind(tree)}")
    if tree.get("type", "function") != "function":
        raise invalid(f"{at}.type", f"must be 'function', got {tree['type']!r:.80}; {_CALL_FORM}")
    function = tree.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{at}.function", f"must be an object; {_CALL_FORM}")
    for key, value in (("id", tree.get("id")), ("function.name", function.get("name"))):
        if not isinstance(value, str) or not value:
            raise invalid(f"{at}.{key}", "must be a non-empty string")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        problem = f"must be a string holding JSON, got {_kind(arguments)}; {_CALL_FORM}"
        raise invalid(f"{at}.function.arguments", problem)
    return ToolCall(id=tree["id"], name=function["name"], arguments=arguments)


def _content(tree: Any, at: str) -> str | tuple[Part, ...] | None:
    if tree is None or isinstance(tree, str):
        return tree
    at = f"{at}.content"
    if not isinstance(tree, list):
        raise invalid(at, f"must be a string or an array of parts, got {_kind(tree)}")
    return tuple(_part(item, f"{at}[{position}]") for position, item in enumerate(tree))


def _part(tree: Any, at: str) -> Part:
    if not isinstance(tree, dict):
        raise invalid(at, f"must be an object, got {_kind(tree)}")
    kind = tree.get("type")
    if kind == "text":
        if not isinstance(tree.get("text"), str):
            raise invalid(f"{at}.text", "must be a string")
        return Part(kind="text", text=tree["text"])
    if kind in ("image_url", "video_url"):
        value = tree.get(kind)
        url = value.get("url") if isinstance(value, dict) else value
        if not isinstance(url, str) or not url:
            raise invalid(f"{at}.{kind}", "must be a URL or an object with a url")
        return Part(kind=kind, media=tree)
    raise invalid(f"{at}.type", f"must be text, image_url or video_url, got {kind!r:.80}")
