"""Requests of Anthropic's Messages format, parsed into the one `Request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.protocol.anthropic_messages import parse_messages, parse_system
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
from gossamer.protocol.request import Request, stop_strings, top_p_of
from gossamer.protocol.tools import parse_tools
from gossamer.protocol.values import boolean, integer, kind_of, mapping, name_of, number, only_keys


def _keeps_all_thinking(value: Any) -> bool:
    """Whether a ``context_management`` asks for nothing but that all thinking stays."""
    edits = value.get("edits", []) if isinstance(value, dict) else None
    return isinstance(edits, list) and all(
        isinstance(edit, dict) and edit.get("type") == "clear_thinking_20251015" and edit.get("keep") == "all"
        for edit in edits
    )


_ELSEWHERE = "belongs to Anthropic's own service"
MESSAGES: tuple[Field, ...] = (
    used("model", "a served model id"),
    used("max_tokens", "required; reasoning included"),
    used("messages", "see Anthropic messages"),
    used(
        "system", "a string or text blocks; a text that begins with `x-anthropic-billing-header` is left out"
    ),
    used("tools", "tools with an `input_schema`; those that Anthropic runs are refused"),
    used("tool_choice", "`auto`, `any`, `tool` or `none`; `disable_parallel_tool_use` ends after one call"),
    used(
        "thinking",
        "`enabled`, `adaptive`, `between_tools`: the model reasons anyway; `budget_tokens` and `display` "
        "have no effect; `disabled` is refused",
    ),
    used("output_config", "`effort` as in Reasoning effort; `format` as `response_format` `json_schema`"),
    used("stop_sequences", "up to 5, each 1 to 32 bytes; matched in the text only"),
    used("stream", "server-sent events"),
    used("temperature", "0 to 2, default 1"),
    used("top_p", "above 0, at most 1, default 0.95"),
    used("top_k", "only the k likeliest tokens; default all"),
    kept("metadata", "no effect"),
    kept("cache_control", "no effect, here and on blocks: prefixes are shared without asking"),
    only("service_tier", "`auto` or `standard_only`", lambda v: v in ("auto", "standard_only")),
    only(
        "speed", "`standard`; for more, ask for the `-highspeed` twin of the model", lambda v: v == "standard"
    ),
    only("context_management", "edits that keep all thinking", _keeps_all_thinking),
    refused("container", _ELSEWHERE),
    refused("mcp_servers", f"{_ELSEWHERE}; offer their tools yourself"),
    refused("inference_geo", _ELSEWHERE),
    refused("diagnostics", _ELSEWHERE),
    refused("compaction", f"{_ELSEWHERE}; shorten the conversation yourself"),
    # The official client sends the whole conversation instead when it reads this code.
    refused("thread", "nothing is kept here; send the whole conversation", code="thread_unsupported_request"),
    refused("fallbacks", _ELSEWHERE),
    refused("user_profile_id", _ELSEWHERE),
    refused("workspace_id", _ELSEWHERE),
)
_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "required"}
_TOOL_KEYS = {
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "eager_input_streaming",
    "cache_control",
    "defer_loading",
    "input_examples",
    "allowed_callers",
}


@dataclass(frozen=True, kw_only=True)
class MessagesRequest:
    """A request, and what its answer has to know besides.

    ``eager`` holds the tools whose input is streamed as it is generated; that of others is sent when it is
    whole, so that a client never has to read half a JSON value.
    """

    request: Request
    eager: frozenset[str]


def parse_messages_request(
    tree: Any, *, passback: Passback = "reject", strict_kimi: bool = False, count_only: bool = False
) -> MessagesRequest:
    """A request from decoded JSON of ``/v1/messages``, or ``/v1/messages/count_tokens``.

    Args:
        tree: The decoded body.
        passback: See `gossamer.protocol.conversation`.
        strict_kimi: Refuse sampling parameters that the published model fixes.
        count_only: Nothing will be generated, so no limit is asked for.

    Raises:
        RequestError: naming the offending field.
    """
    if not isinstance(tree, dict):
        raise RequestError("the body must be a JSON object")
    if strict_kimi:
        check_fixed_sampling(tree)
    extra = check_fields(tree, MESSAGES)
    if not isinstance(tree.get("model"), str) or not tree["model"]:
        raise invalid("model", "must be a non-empty string")
    max_tokens = integer(tree, "max_tokens", 1, 2**31)
    if max_tokens is None and not count_only:
        raise invalid("max_tokens", "is missing")
    tools, eager = _tools(tree.get("tools"))
    choice, named, parallel = _tool_choice(tree.get("tool_choice"), tools)
    messages = (*parse_system(tree.get("system")), *parse_messages(tree.get("messages")))
    warnings = check_conversation(messages, passback)
    _check_thinking(tree.get("thinking"))
    sent_effort, response_format = _output_config(tree.get("output_config"))
    request = Request(
        model=tree["model"],
        messages=messages,
        tools=tools,
        tool_choice=choice,
        named_tool=named,
        parallel_tool_calls=parallel,
        response_format=response_format,
        reasoning_effort=effort(sent_effort, "output_config.effort"),
        max_tokens=max_tokens,
        temperature=number(tree, "temperature", 0.0, 2.0, 1.0),
        top_p=top_p_of(tree),
        top_k=integer(tree, "top_k", 1, 2**31),
        stop=stop_strings(tree.get("stop_sequences"), "stop_sequences"),
        stream=boolean(tree, "stream", False),
        extra=extra,
        warnings=warnings,
    )
    return MessagesRequest(request=request, eager=eager)


def _tools(tree: Any) -> tuple[tuple[Mapping[str, Any], ...], frozenset[str]]:
    if tree is None:
        return (), frozenset()
    if not isinstance(tree, list):
        raise invalid("tools", f"must be an array, got {kind_of(tree)}")
    tools = [_tool(item, f"tools[{position}]") for position, item in enumerate(tree)]
    eager = frozenset(
        tool["name"]
        for position, tool in enumerate(tree)
        if boolean(tool, "eager_input_streaming", False, at=f"tools[{position}].")
    )
    try:
        return parse_tools(tools, "tools", set()), eager
    except RequestError as error:
        # The rules are the same, the names of the fields are not.
        text, param = error.message, error.param or ""
        for theirs, ours in ((".function.parameters", ".input_schema"), (".function.", ".")):
            text, param = text.replace(theirs, ours), param.replace(theirs, ours)
        raise RequestError(text, param=param, code=error.code) from None


def _tool(tree: Any, at: str) -> dict[str, Any]:
    """The same tool as the model is shown it."""
    kind = mapping(tree, at).get("type")
    if kind not in (None, "custom"):
        raise invalid(
            f"{at}.type", f"{kind!r:.80} is a tool that Anthropic defines; declare its input_schema"
        )
    only_keys(tree, _TOOL_KEYS, at, "a tool")
    if boolean(tree, "defer_loading", False, at=f"{at}."):
        raise invalid(f"{at}.defer_loading", "must be false: there is no tool search here")
    if tree.get("allowed_callers") not in (None, ["direct"]):
        raise invalid(f"{at}.allowed_callers", 'must be ["direct"]')
    function: dict[str, Any] = {"name": name_of(tree, "name", at)}
    if tree.get("description") is not None:
        function["description"] = tree["description"]
    function["parameters"] = mapping(tree.get("input_schema"), f"{at}.input_schema")
    if tree.get("strict") is not None:
        function["strict"] = tree["strict"]
    return {"type": "function", "function": function}


def _tool_choice(tree: Any, tools: tuple[Mapping[str, Any], ...]) -> tuple[str, str | None, bool]:
    """How calls are chosen, the one tool that is named, and whether several may come at a time."""
    if tree is None:
        return "auto", None, True
    only_keys(
        mapping(tree, "tool_choice"), {"type", "name", "disable_parallel_tool_use"}, "tool_choice", "it"
    )
    kind = tree.get("type")
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise invalid("tool_choice.type", f"must be auto, any, tool or none, got {kind!r:.80}")
    choice = _CHOICES[kind]
    if choice == "required" and not tools:
        raise invalid("tool_choice", f"{kind!r} needs at least one tool")
    named = name_of(tree, "name", "tool_choice") if kind == "tool" else None
    if named is not None and named not in {tool["function"]["name"] for tool in tools}:
        raise invalid("tool_choice.name", f"{named!r:.80} is not among the declared tools")
    return choice, named, not boolean(tree, "disable_parallel_tool_use", False, at="tool_choice.")


def _check_thinking(tree: Any) -> None:
    if tree is None:
        return
    only_keys(mapping(tree, "thinking"), {"type", "budget_tokens", "display"}, "thinking", "it")
    kind = tree.get("type")
    if kind == "disabled":
        raise invalid(
            "thinking.type",
            "'disabled' is not supported: this model always reasons; output_config.effort 'low' is the least",
            code="unsupported_value",
        )
    if kind not in ("enabled", "adaptive", "between_tools"):
        raise invalid("thinking.type", f"must be enabled, adaptive or between_tools, got {kind!r:.80}")
    integer(tree, "budget_tokens", 1, 2**31)


def _output_config(tree: Any) -> tuple[Any, Mapping[str, Any] | None]:
    if tree is None:
        return None, None
    only_keys(mapping(tree, "output_config"), {"effort", "format"}, "output_config", "it")
    form = tree.get("format")
    if form is None:
        return tree.get("effort"), None
    at = "output_config.format"
    only_keys(mapping(form, at), {"type", "schema"}, at, "it")
    if form.get("type") != "json_schema":
        raise invalid(f"{at}.type", f"must be json_schema, got {form.get('type')!r:.80}")
    schema = mapping(form.get("schema"), f"{at}.schema")
    spec = {"name": "output", "strict": True, "schema": schema}
    return tree.get("effort"), {"type": "json_schema", "json_schema": spec}
