"""The one table of request fields: what is honoured, what is kept, what is refused and why.

`docs/api.md` shows this table; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from gossamer.protocol.errors import RequestError

Treatment = Literal["used", "kept", "only", "refused"]


@dataclass(frozen=True, kw_only=True)
class Field:
    """How one top-level request field is treated.

    ``used`` changes the answer; ``kept`` is carried along without effect; ``only`` accepts the values
    that ask for what happens anyway; ``refused`` is an error that says what to do instead.
    """

    name: str
    treatment: Treatment
    note: str
    accepts: Callable[[Any], bool] | None = None


def _used(name: str, note: str) -> Field:
    return Field(name=name, treatment="used", note=note)


def _kept(name: str, note: str) -> Field:
    return Field(name=name, treatment="kept", note=note)


def _only(name: str, note: str, accepts: Callable[[Any], bool]) -> Field:
    return Field(name=name, treatment="only", note=note, accepts=accepts)


def _refused(name: str, note: str) -> Field:
    return Field(name=name, treatment="refused", note=note)


TABLE: tuple[Field, ...] = (
    _used("model", "a served model id"),
    _used("messages", "see Messages"),
    _used("tools", "functions, at most 128; see Tools"),
    _used(
        "tool_choice",
        "`auto`, `none`, `required`, or one function by name; the last two are enforced while decoding",
    ),
    _used("parallel_tool_calls", "`false` ends the answer after one call"),
    _used(
        "response_format",
        "`text`, `json_object`, `json_schema`; enforced while decoding, see docs/structured.md",
    ),
    _used("reasoning_effort", "`low`, `high`, `max` (default); see Reasoning effort"),
    _used("max_completion_tokens", "reasoning included; default: 131,072, or what is left of the context"),
    _used("max_tokens", "older name; `max_completion_tokens` wins when both are given"),
    _used("temperature", "0 to 2, default 1; 0 always takes the likeliest token"),
    _used("top_p", "above 0, at most 1, default 0.95"),
    _used("top_k", "only the k likeliest tokens; 0 or -1, the default: all"),
    _used("min_p", "0 to 1, default 0; only tokens at least this many times as likely as the likeliest"),
    _used("presence_penalty", "-2 to 2, default 0; for tokens generated before"),
    _used("frequency_penalty", "-2 to 2, default 0; for each time a token was generated before"),
    _used("repetition_penalty", "0.01 to 100, default 1; for tokens in the prompt or generated before"),
    _used("logit_bias", "token id to a number from -100 to 100, at most 1024 ids"),
    _used("logprobs", "`true` returns log-probabilities; see Log-probabilities"),
    _used("top_logprobs", "0 to 20 alternatives per token; needs `logprobs`"),
    _used("min_tokens", "the answer's end is not sampled before that many tokens; default 0"),
    _used("ignore_eos", "`true`: the answer's end is never sampled, tokens are counted up to the limit"),
    _used("seed", "same seed, same request: same answer"),
    _used("stop", "a string or up to 5, each 1 to 32 bytes; matched in `content` only"),
    _used("stream", "server-sent events"),
    _used("stream_options", "`include_usage`"),
    _kept("user", "no effect"),
    _kept("metadata", "no effect"),
    _kept("safety_identifier", "no effect"),
    _kept("prompt_cache_key", "no effect"),
    _kept("prompt_cache_options", "no effect"),
    _only("n", "1: one answer per request", lambda v: v == 1 and not isinstance(v, bool)),
    _only("modalities", '`["text"]`', lambda v: v == ["text"]),
    _only("store", "`false`: nothing is stored", lambda v: v is False),
    _only("service_tier", "`auto` or `default`", lambda v: v in ("auto", "default")),
    _refused("thinking", "this family takes no `thinking` object and always reasons; set `reasoning_effort`"),
    _refused("reasoning", "set `reasoning_effort` instead"),
    _refused("chat_template_kwargs", "set `reasoning_effort`; the template has no other switch"),
    _refused("functions", "superseded by `tools`"),
    _refused("function_call", "superseded by `tool_choice`"),
    _refused("audio", "text only"),
    _refused("prediction", "not supported"),
    _refused("web_search_options", "not supported; offer a tool"),
    _refused("verbosity", "not supported; say it in a message"),
)

EFFORTS: dict[str, str] = {
    "minimal": "low",
    "low": "low",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "highest": "max",
    "max": "max",
}
"""Accepted ``reasoning_effort`` values and the trained effort each one runs as."""

EFFORTS_OFF = ("none", "off", "disabled")
"""Refused with an explanation: the model was never trained to answer without reasoning."""


def check_fields(tree: dict[str, Any]) -> dict[str, Any]:
    """Refuse what cannot be honoured, by name; return the kept fields.

    A null field is an absent field.

    Raises:
        RequestError: naming the first field that is unknown, refused, or holds an unusable value.
    """
    table = {field.name: field for field in TABLE}
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        if value is None:
            continue
        field = table.get(name)
        if field is None:
            raise RequestError(
                f"unknown field {name!r}; the fields of a request are listed in docs/api.md",
                param=name,
                code="unknown_parameter",
            )
        if field.treatment == "refused":
            raise RequestError(
                f"{name} is not accepted: {field.note}", param=name, code="unsupported_parameter"
            )
        if field.accepts is not None and not field.accepts(value):
            raise RequestError(
                f"{name}={value!r:.80} is not supported; accepted is {field.note}",
                param=name,
                code="unsupported_value",
            )
        if field.treatment == "kept":
            kept[name] = value
    return kept


def effort(value: Any) -> str:
    """The trained effort that a ``reasoning_effort`` value runs as; absent means ``max``.

    Raises:
        RequestError: ``none`` and its kin, and any other value outside the table.
    """
    if value is None:
        return "max"
    if isinstance(value, str) and value in EFFORTS:
        return EFFORTS[value]
    if isinstance(value, str) and value in EFFORTS_OFF:
        message = (
            f"reasoning_effort {value!r}: this model always reasons and has no off switch; 'low' is the least"
        )
    else:
        message = f"reasoning_effort {value!r:.80} is unknown; use one of {', '.join(EFFORTS)}"
    raise RequestError(message, param="reasoning_effort")


def markdown() -> str:
    """The table as it stands in docs/api.md."""
    words = {"used": "used", "kept": "kept, no effect", "only": "one value", "refused": "refused"}
    rows = [f"| `{f.name}` | {words[f.treatment]} | {f.note} |" for f in TABLE]
    return "\n".join(["| field | treatment | note |", "|---|---|---|", *rows])
