"""Requests of OpenAI's Responses format, parsed into the one `Request`; nothing is stored between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.protocol.conversation import Passback, check_conversation
from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.fields import (
    Field,
    check_fields,
    check_fixed_sampling,
    effort,
    kept,
    only,
    refused,
    used,
)
from gossamer.protocol.messages import Message, Origin
from gossamer.protocol.request import MAX_TOP_LOGPROBS, Request, top_p_of
from gossamer.protocol.responses_items import CUSTOM_FIELD, parse_input
from gossamer.protocol.tools import (
    parse_named_tool,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)
from gossamer.protocol.values import boolean, integer, kind_of, mapping, name_of, number, only_keys

_LOGPROBS = "message.output_text.logprobs"
_INCLUDES = ("reasoning.encrypted_content", _LOGPROBS)
_NOT_KEPT = "nothing is stored here; send the whole conversation as `input`"
RESPONSES: tuple[Field, ...] = (
    used("model", "a served model id"),
    used("input", "a string or items; see Responses items"),
    used("instructions", "a system message before the input"),
    used("tools", "`function`, and `custom` as a function with one text argument; others are refused"),
    used("tool_choice", "`auto`, `none`, `required`, or one function or custom tool by name"),
    used("parallel_tool_calls", "`false` ends the answer after one call"),
    used("reasoning", "`effort` as in Reasoning effort; `summary` has no effect: the reasoning itself comes"),
    used("text", "`format` as `response_format`; `verbosity` only `medium`"),
    used("max_output_tokens", "reasoning included; default: 131,072, or what is left of the context"),
    used("temperature", "0 to 2, default 1"),
    used("top_p", "above 0, at most 1, default 0.95"),
    used("top_logprobs", f"0 to 20; with `include` holding `{_LOGPROBS}`"),
    used("include", f"`{_INCLUDES[0]}` (it always comes) and `{_LOGPROBS}`"),
    used("truncation", "`auto` drops whole oldest turns until the rest fits; `disabled` (default) refuses"),
    used("stream", "server-sent events"),
    kept("stream_options", "no effect"),
    kept("metadata", "comes back with the response"),
    kept("user", "comes back with the response"),
    kept("safety_identifier", "comes back with the response"),
    kept("prompt_cache_key", "comes back with the response"),
    kept("prompt_cache_options", "no effect"),
    kept("prompt_cache_retention", "no effect"),
    kept("client_metadata", "no effect"),
    only("store", "`false`: nothing is stored", lambda v: v is False),
    only("background", "`false`", lambda v: v is False),
    only("service_tier", "`auto` or `default`", lambda v: v in ("auto", "default")),
    refused("previous_response_id", _NOT_KEPT),
    refused("conversation", _NOT_KEPT),
    refused("prompt", "no prompts are stored here; send its text"),
    refused("context_management", "shorten the input, or set `truncation`"),
    refused("max_tool_calls", "no tools run here; count the calls yourself"),
    refused("moderation", "not supported"),
)
_FUNCTION_KEYS = {"type", "name", "description", "parameters", "strict", "defer_loading", "allowed_callers"}
_CUSTOM_KEYS = {"type", "name", "description", "format", "defer_loading", "allowed_callers"}


@dataclass(frozen=True, kw_only=True)
class ResponsesRequest:
    """A request, and what its response repeats.

    Attributes:
        request: The request proper.
        echo: Fields of the response that say what was asked for.
        custom: Names of the tools that take free text.
        truncate: Whether the oldest turns may go.
    """

    request: Request
    echo: Mapping[str, Any]
    custom: frozenset[str]
    truncate: bool


def parse_responses_request(
    tree: Any, *, passback: Passback = "reject", strict_kimi: bool = False
) -> ResponsesRequest:
    """A request from decoded JSON of ``/v1/responses``.

    Raises:
        RequestError: naming the offending field.
    """
    if not isinstance(tree, dict):
        raise RequestError("the body must be a JSON object")
    if strict_kimi:
        check_fixed_sampling(tree)
    extra = check_fields(tree, RESPONSES)
    if not isinstance(tree.get("model"), str) or not tree["model"]:
        raise invalid("model", "must be a non-empty string")
    tools, custom = _tools(tree.get("tools"))
    names = {tool["function"]["name"] for tool in tools}
    choice = _choice(tree.get("tool_choice"))
    messages = (*_instructions(tree.get("instructions")), *parse_input(tree.get("input")))
    request = Request(
        model=tree["model"],
        messages=messages,
        tools=tools,
        tool_choice=parse_tool_choice(choice, bool(names)),
        named_tool=parse_named_tool(choice, names),
        parallel_tool_calls=boolean(tree, "parallel_tool_calls", True),
        response_format=_text_format(tree.get("text")),
        reasoning_effort=_effort(tree.get("reasoning")),
        max_tokens=integer(tree, "max_output_tokens", 1, 2**31),
        temperature=number(tree, "temperature", 0.0, 2.0, 1.0),
        top_p=top_p_of(tree),
        logprobs=_logprobs(tree),
        stream=boolean(tree, "stream", False),
        extra=extra,
        warnings=check_conversation(messages, passback),
    )
    return ResponsesRequest(
        request=request, echo=_echo(tree, request), custom=custom, truncate=_truncate(tree.get("truncation"))
    )


def _instructions(tree: Any) -> tuple[Message, ...]:
    if tree is None or tree == "":
        return ()
    if not isinstance(tree, str):
        raise invalid("instructions", f"must be a string, got {kind_of(tree)}")
    return (Message(role="system", content=tree, origin=Origin(index=0, path="instructions")),)


def _tools(tree: Any) -> tuple[tuple[Mapping[str, Any], ...], frozenset[str]]:
    if tree is None:
        return (), frozenset()
    if not isinstance(tree, list):
        raise invalid("tools", f"must be an array, got {kind_of(tree)}")
    tools = [_tool(item, f"tools[{position}]") for position, item in enumerate(tree)]
    custom = frozenset(tool["name"] for tool in tree if tool["type"] == "custom")
    try:
        return parse_tools(tools, "tools", set()), custom
    except RequestError as error:
        text, param = (part.replace(".function.", ".") for part in (error.message, error.param or ""))
        raise RequestError(text, param=param, code=error.code) from None


def _tool(tree: Any, at: str) -> dict[str, Any]:
    """The same tool as the model is shown it."""
    kind = mapping(tree, at).get("type")
    if kind not in ("function", "custom"):
        raise invalid(
            f"{at}.type",
            f"{kind!r:.80} is not supported: no tools run here; switch it off, or offer it as a function",
            code="unsupported_value",
        )
    only_keys(tree, _FUNCTION_KEYS if kind == "function" else _CUSTOM_KEYS, at, f"a {kind} tool")
    if boolean(tree, "defer_loading", False, at=f"{at}."):
        raise invalid(f"{at}.defer_loading", "must be false: there is no tool search here")
    if kind == "custom":
        return _custom_tool(tree, at)
    function: dict[str, Any] = {"name": name_of(tree, "name", at)}
    for key in ("description", "parameters", "strict"):
        if tree.get(key) is not None:
            function[key] = tree[key]
    return {"type": "function", "function": function}


def _custom_tool(tree: dict[str, Any], at: str) -> dict[str, Any]:
    """A function of one text; a grammar cannot be enforced and so is told to the model."""
    form = mapping(tree.get("format") or {"type": "text"}, f"{at}.format")
    kind = form.get("type")
    if kind not in ("text", "grammar"):
        raise invalid(f"{at}.format.type", f"must be text or grammar, got {kind!r:.80}")
    field: dict[str, Any] = {"type": "string"}
    if kind == "grammar":
        syntax, definition = form.get("syntax"), form.get("definition")
        field["description"] = f"Text of this {syntax} grammar:\n{definition}"
    function: dict[str, Any] = {"name": name_of(tree, "name", at)}
    if tree.get("description") is not None:
        function["description"] = tree["description"]
    function["parameters"] = {
        "type": "object",
        "properties": {CUSTOM_FIELD: field},
        "required": [CUSTOM_FIELD],
        "additionalProperties": False,
    }
    return {"type": "function", "function": function}


def _choice(tree: Any) -> Any:
    """The choice as the chat format writes it."""
    if not isinstance(tree, dict):
        return tree
    if tree.get("type") not in ("function", "custom"):
        raise invalid(
            "tool_choice.type", f"must be function or custom, got {tree.get('type')!r:.80}; or send a string"
        )
    return {"type": "function", "function": {"name": name_of(tree, "name", "tool_choice")}}


def _text_format(tree: Any) -> Mapping[str, Any] | None:
    if tree is None:
        return None
    only_keys(mapping(tree, "text"), {"format", "verbosity"}, "text", "it")
    if tree.get("verbosity") not in (None, "medium"):
        raise invalid("text.verbosity", "is not supported; say it in a message", code="unsupported_value")
    form = tree.get("format")
    if form is None:
        return None
    at = "text.format"
    if mapping(form, at).get("type") != "json_schema":
        only_keys(form, {"type"}, at, "it")
        return _renamed(form, at)
    keys = {"name", "schema", "strict", "description"}
    only_keys(form, {"type", *keys}, at, "it")
    spec = {key: form[key] for key in keys if form.get(key) is not None}
    return _renamed({"type": "json_schema", "json_schema": spec}, at)


def _renamed(tree: Any, at: str) -> Mapping[str, Any] | None:
    try:
        return parse_response_format(tree)
    except RequestError as error:
        text, param = (
            part.replace("response_format.json_schema", at).replace("response_format", at)
            for part in (error.message, error.param or "")
        )
        raise RequestError(text, param=param, code=error.code) from None


def _effort(tree: Any) -> str:
    if tree is None:
        return effort(None)
    keys = {"effort", "summary", "generate_summary", "context"}
    only_keys(mapping(tree, "reasoning"), keys, "reasoning", "it")
    if tree.get("context") not in (None, "auto", "all_turns"):
        raise invalid("reasoning.context", "must be all_turns: what is sent is what the model reads")
    return effort(tree.get("effort"), "reasoning.effort")


def _logprobs(tree: Mapping[str, Any]) -> int | None:
    includes = tree.get("include") or []
    if not isinstance(includes, list):
        raise invalid("include", f"must be an array, got {kind_of(includes)}")
    for position, name in enumerate(includes):
        if name not in _INCLUDES:
            raise invalid(f"include[{position}]", f"must be one of {', '.join(_INCLUDES)}, got {name!r:.80}")
    count = integer(tree, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if _LOGPROBS not in includes:
        if count:
            raise invalid("top_logprobs", f"needs {_LOGPROBS} in include")
        return None
    return count or 0


def _truncate(tree: Any) -> bool:
    if tree not in (None, "auto", "disabled"):
        raise invalid("truncation", f"must be auto or disabled, got {tree!r:.80}")
    return tree == "auto"


def _echo(tree: Mapping[str, Any], request: Request) -> dict[str, Any]:
    return {
        "instructions": tree.get("instructions"),
        "metadata": tree.get("metadata") or {},
        "parallel_tool_calls": request.parallel_tool_calls,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "tool_choice": tree.get("tool_choice") or "auto",
        "tools": tree.get("tools") or [],
        "max_output_tokens": request.max_tokens,
        "reasoning": {"effort": request.reasoning_effort, "summary": None},
        "text": tree.get("text") or {"format": {"type": "text"}},
        "truncation": tree.get("truncation") or "disabled",
        "top_logprobs": request.logprobs or 0,
        "store": False,
        "background": False,
        "previous_response_id": None,
        "service_tier": "default",
        **{key: tree.get(key) for key in ("user", "safety_identifier", "prompt_cache_key")},
    }
