"""A chat-completion request as a value, parsed strictly from OpenAI JSON."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import msgspec

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.fields import check_fields, effort
from gossamer.protocol.messages import Message, parse_message
from gossamer.protocol.tools import (
    parse_named_tool,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)

MAX_STOPS = 5
MAX_STOP_BYTES = 32
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20
MAX_NAMED = 10
"""Most ids that one error message lists."""
Passback = Literal["require", "allow"]
# An escaped surrogate whose other half does not follow; an even run of backslashes escapes nothing.
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)(?:\\\\)*(?:"
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a client asked for, validated; defaults are the family's.

    ``named_tool`` is the function that ``tool_choice`` names, which is then ``required``.
    ``reasoning_effort`` is the trained effort (low, high, max) that the sent value runs as.
    ``top_k`` None is all; ``logprobs`` is the number of alternatives per token, None for no
    log-probabilities at all.  ``extra`` carries the fields that are kept without effect.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str = "auto"
    named_tool: str | None = None
    parallel_tool_calls: bool = True
    response_format: Mapping[str, Any] | None = None
    reasoning_effort: str = "max"
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 1.0
    top_p: float = 0.95
    top_k: int | None = None
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


def decode_json(body: bytes) -> Any:
    """A request body as plain values.

    Raises:
        RequestError: not JSON, not UTF-8, a number out of range, or nested beyond reason.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if lone := _LONE_SURROGATE.search(body):
            half = lone.group()[-6:].decode()
            raise RequestError(
                f"invalid JSON: the escape {half} at byte {lone.end() - 6} is half a character: "
                "a string was cut inside an emoji or the like, cut it between characters or drop the escape",
                code="invalid_json",
            ) from None
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply", code="invalid_json") from None


def parse(tree: Any, *, passback: Passback = "require") -> Request:
    """A `Request` from decoded JSON.

    Args:
        tree: The decoded body.
        passback: Whether an assistant message with tool calls must bring its reasoning back, as the
            family's own API demands (an empty string will do where the model returned one).

    Raises:
        RequestError: naming the offending field.
    """
    if not isinstance(tree, dict):
        raise RequestError("the body must be a JSON object")
    extra = check_fields(tree)
    model = tree.get("model")
    if not isinstance(model, str) or not model:
        raise invalid("model", "must be a non-empty string")
    names: set[str] = set()
    tools = () if tree.get("tools") is None else parse_tools(tree["tools"], "tools", names)
    messages = _messages(tree.get("messages"), names)
    if passback == "require":
        _check_passback(messages)
    top_k = _integer(tree, "top_k", -1, 2**31)
    limit = "max_completion_tokens" if tree.get("max_completion_tokens") is not None else "max_tokens"
    return Request(
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=parse_tool_choice(tree.get("tool_choice"), bool(names)),
        named_tool=parse_named_tool(tree.get("tool_choice"), names),
        parallel_tool_calls=_boolean(tree, "parallel_tool_calls", True),
        response_format=parse_response_format(tree.get("response_format")),
        reasoning_effort=effort(tree.get("reasoning_effort")),
        max_tokens=_integer(tree, limit, 1, 2**31),
        min_tokens=_min_tokens(tree, limit),
        ignore_eos=_boolean(tree, "ignore_eos", False),
        temperature=_number(tree, "temperature", 0.0, 2.0, 1.0),
        top_p=_top_p(tree),
        # Other engines write "all" as 0 (llama.cpp) or as -1 (vLLM).
        top_k=top_k if top_k is not None and top_k > 0 else None,
        min_p=_number(tree, "min_p", 0.0, 1.0, 0.0),
        presence_penalty=_number(tree, "presence_penalty", -2.0, 2.0, 0.0),
        frequency_penalty=_number(tree, "frequency_penalty", -2.0, 2.0, 0.0),
        repetition_penalty=_number(tree, "repetition_penalty", 0.01, 100.0, 1.0),
        logit_bias=_logit_bias(tree.get("logit_bias")),
        logprobs=_logprobs(tree),
        seed=_integer(tree, "seed", -(2**63), 2**63 - 1),
        stop=_stop(tree.get("stop")),
        stream=_boolean(tree, "stream", False),
        include_usage=_include_usage(tree),
        extra=extra,
    )


def _messages(tree: Any, names: set[str]) -> tuple[Message, ...]:
    if not isinstance(tree, list) or not tree:
        raise invalid("messages", "must be a non-empty array")
    messages = tuple(parse_message(item, index, names) for index, item in enumerate(tree))
    for index, message in enumerate(messages[:-1]):
        if message.partial:
            raise RequestError(
                f"messages[{index}].partial: only the last message can be continued",
                param=f"messages[{index}].partial",
            )
    _check_results(messages)
    return messages


def _check_results(messages: tuple[Message, ...]) -> None:
    """Each run of tool messages must answer exactly the calls of the assistant message before it."""
    caller = -1
    calls: frozenset[str | None] = frozenset()
    waiting: dict[str | None, None] = {}
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                fault = (
                    "is answered twice" if message.tool_call_id in calls else "matches no call just before it"
                )
                raise invalid(f"messages[{index}].tool_call_id", f"{message.tool_call_id!r:.80} {fault}")
            del waiting[message.tool_call_id]
            continue
        _check_answered(caller, waiting)
        caller = index
        waiting = dict.fromkeys(call.id for call in message.tool_calls)
        calls = frozenset(waiting)
    _check_answered(caller, waiting)


def _check_answered(caller: int, waiting: Collection[str | None]) -> None:
    if waiting:
        unanswered = ", ".join(f"{call_id:.80}" for call_id in islice(waiting, MAX_NAMED))
        if len(waiting) > MAX_NAMED:
            unanswered += f" and {len(waiting) - MAX_NAMED} more"
        raise RequestError(
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{unanswered} (message at index {caller})",
            param=f"messages[{caller}].tool_calls",
        )


def _check_passback(messages: tuple[Message, ...]) -> None:
    for index, message in enumerate(messages):
        if message.tool_calls and message.reasoning is None:
            raise RequestError(
                "thinking is enabled but reasoning_content is missing in assistant tool call message "
                f"at index {index}",
                param=f"messages[{index}].reasoning_content",
                code="reasoning_content_missing",
            )


def _stop(tree: Any) -> tuple[str, ...]:
    if tree is None:
        return ()
    stops = [tree] if isinstance(tree, str) else tree
    if not isinstance(stops, list) or not all(isinstance(s, str) for s in stops):
        raise invalid("stop", "must be a string or an array of strings")
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"holds {len(stops)} strings; at most {MAX_STOPS}")
    for text in stops:
        if not 1 <= len(text.encode()) <= MAX_STOP_BYTES:
            raise invalid("stop", f"{text!r:.80} must be 1 to {MAX_STOP_BYTES} bytes long")
    return tuple(dict.fromkeys(stops))


def _min_tokens(tree: dict[str, Any], limit: str) -> int:
    wanted = _integer(tree, "min_tokens", 0, 2**31) or 0
    most = _integer(tree, limit, 1, 2**31)
    if most is not None and wanted > most:
        raise invalid("min_tokens", f"must be at most {limit}, got {wanted} and {most}")
    return wanted


def _logit_bias(tree: Any) -> dict[int, float]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise invalid("logit_bias", "must be an object that maps token ids to numbers")
    if len(tree) > MAX_BIASES:
        raise invalid("logit_bias", f"holds {len(tree)} ids; at most {MAX_BIASES}")
    biases: dict[int, float] = {}
    for key, value in tree.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise invalid("logit_bias", f"holds the key {key!r:.80}; keys are token ids, such as '42'")
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            raise invalid(f"logit_bias.{key}", f"must be a number from -100 to 100, got {value!r:.80}")
        if int(key) in biases:
            raise invalid("logit_bias", f"names token id {int(key)} twice")
        biases[int(key)] = float(value)
    return biases


def _logprobs(tree: dict[str, Any]) -> int | None:
    wanted = _boolean(tree, "logprobs", False)
    count = _integer(tree, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if count and not wanted:
        raise invalid("top_logprobs", "needs logprobs=true")
    return (count or 0) if wanted else None


def _include_usage(tree: dict[str, Any]) -> bool:
    options = tree.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise invalid("stream_options", "must be an object")
    if not tree.get("stream"):
        raise invalid("stream_options", "needs stream=true")
    for key in options:
        if key != "include_usage":
            raise invalid(f"stream_options.{key}", "is unknown")
    return _boolean(options, "include_usage", False, at="stream_options.")


def _boolean(tree: dict[str, Any], key: str, default: bool, *, at: str = "") -> bool:
    value = tree.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(at + key, f"must be true or false, got {value!r:.80}")
    return value


def _integer(tree: dict[str, Any], key: str, low: int, high: int) -> int | None:
    value = tree.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(key, f"must be an integer from {low} to {high}, got {value!r:.80}")
    return value


def _number(tree: dict[str, Any], key: str, low: float, high: float, default: float) -> float:
    value = tree.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(key, f"must be a number from {low:g} to {high:g}, got {value!r:.80}")
    return float(value)


def _top_p(tree: dict[str, Any]) -> float:
    value = _number(tree, "top_p", 0.0, 1.0, 0.95)
    if value == 0.0:
        raise invalid("top_p", "must be above 0; for the likeliest token set temperature to 0")
    return value
