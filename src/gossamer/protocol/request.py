"""A chat-completion request as a value, parsed strictly from OpenAI JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gossamer.protocol.conversation import Passback, check_conversation
from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.fields import CHAT, check_fields, check_fixed_sampling, effort
from gossamer.protocol.messages import Message, parse_message
from gossamer.protocol.tools import (
    parse_named_tool,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
)
from gossamer.protocol.values import boolean, integer, number

MAX_STOPS = 5
MAX_STOP_BYTES = 32
MAX_BIASES = 1024
MAX_TOP_LOGPROBS = 20
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
    log-probabilities at all.  ``extra`` carries the fields that are kept without effect;
    ``warnings`` tell the client what was accepted although it is probably a mistake.
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
    warnings: tuple[str, ...] = ()


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


def parse(tree: Any, *, passback: Passback = "reject", strict_kimi: bool = False) -> Request:
    """A `Request` from decoded JSON of OpenAI's chat format.

    Args:
        tree: The decoded body.
        passback: What to do with an assistant message that has tool calls and no reasoning; see
            `gossamer.protocol.conversation`.
        strict_kimi: Refuse sampling parameters that the published model fixes.

    Raises:
        RequestError: naming the offending field.
    """
    if not isinstance(tree, dict):
        raise RequestError("the body must be a JSON object")
    if strict_kimi:
        check_fixed_sampling(tree)
    extra = check_fields(tree, CHAT)
    model = tree.get("model")
    if not isinstance(model, str) or not model:
        raise invalid("model", "must be a non-empty string")
    names: set[str] = set()
    tools = () if tree.get("tools") is None else parse_tools(tree["tools"], "tools", names)
    messages = _messages(tree.get("messages"), names)
    warnings = check_conversation(messages, passback)
    top_k = integer(tree, "top_k", -1, 2**31)
    limit = "max_completion_tokens" if tree.get("max_completion_tokens") is not None else "max_tokens"
    return Request(
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=parse_tool_choice(tree.get("tool_choice"), bool(names)),
        named_tool=parse_named_tool(tree.get("tool_choice"), names),
        parallel_tool_calls=boolean(tree, "parallel_tool_calls", True),
        response_format=parse_response_format(tree.get("response_format")),
        reasoning_effort=effort(tree.get("reasoning_effort")),
        max_tokens=integer(tree, limit, 1, 2**31),
        min_tokens=_min_tokens(tree, limit),
        ignore_eos=boolean(tree, "ignore_eos", False),
        temperature=number(tree, "temperature", 0.0, 2.0, 1.0),
        top_p=top_p_of(tree),
        # Other engines write "all" as 0 (llama.cpp) or as -1 (vLLM).
        top_k=top_k if top_k is not None and top_k > 0 else None,
        min_p=number(tree, "min_p", 0.0, 1.0, 0.0),
        presence_penalty=number(tree, "presence_penalty", -2.0, 2.0, 0.0),
        frequency_penalty=number(tree, "frequency_penalty", -2.0, 2.0, 0.0),
        repetition_penalty=number(tree, "repetition_penalty", 0.01, 100.0, 1.0),
        logit_bias=_logit_bias(tree.get("logit_bias")),
        logprobs=_logprobs(tree),
        seed=integer(tree, "seed", -(2**63), 2**63 - 1),
        stop=stop_strings(tree.get("stop")),
        stream=boolean(tree, "stream", False),
        include_usage=_include_usage(tree),
        extra=extra,
        warnings=warnings,
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
    return messages


def stop_strings(tree: Any, at: str = "stop") -> tuple[str, ...]:
    """The stop strings of a request, each once.

    Raises:
        RequestError: naming ``at``: no string or array of strings, too many, or one of a length out of range.
    """
    if tree is None:
        return ()
    stops = [tree] if isinstance(tree, str) else tree
    if not isinstance(stops, list) or not all(isinstance(s, str) for s in stops):
        raise invalid(at, "must be a string or an array of strings")
    if len(stops) > MAX_STOPS:
        raise invalid(at, f"holds {len(stops)} strings; at most {MAX_STOPS}")
    for text in stops:
        if not 1 <= len(text.encode()) <= MAX_STOP_BYTES:
            raise invalid(at, f"{text!r:.80} must be 1 to {MAX_STOP_BYTES} bytes long")
    return tuple(dict.fromkeys(stops))


def _min_tokens(tree: dict[str, Any], limit: str) -> int:
    wanted = integer(tree, "min_tokens", 0, 2**31) or 0
    most = integer(tree, limit, 1, 2**31)
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
    wanted = boolean(tree, "logprobs", False)
    count = integer(tree, "top_logprobs", 0, MAX_TOP_LOGPROBS)
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
    return boolean(options, "include_usage", False, at="stream_options.")


def top_p_of(tree: Mapping[str, Any]) -> float:
    """The share of ``top_p``, 0.95 where absent.

    Raises:
        RequestError: outside 0 to 1, or 0.
    """
    value = number(tree, "top_p", 0.0, 1.0, 0.95)
    if value == 0.0:
        raise invalid("top_p", "must be above 0; for the likeliest token set temperature to 0")
    return value
