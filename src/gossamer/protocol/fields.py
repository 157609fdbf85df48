"""The tables of request fields, one a format: what is honoured, what is kept, what is refused and why.

`docs/api.md` shows these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    code: str = "unsupported_parameter"
    """The error's code where it is refused."""


def used(name: str, note: str) -> Field:
    """A field that changes the answer."""
    return Field(name=name, treatment="used", note=note)


def kept(name: str, note: str) -> Field:
    """A field that is carried along without effect."""
    return Field(name=name, treatment="kept", note=note)


def only(name: str, note: str, accepts: Callable[[Any], bool]) -> Field:
    """A field of which ``accepts`` takes the values that ask for what happens anyway."""
    return Field(name=name, treatment="only", note=note, accepts=accepts)


def refused(name: str, note: str, *, code: str = "unsupported_parameter") -> Field:
    """A field that is an error; ``note`` says what to do instead."""
    return Field(name=name, treatment="refused", note=note, code=code)


CHAT: tuple[Field, ...] = (
    used("model", "a served model id"),
    used("messages", "see Messages"),
    used("tools", "functions, at most 128; see Tools"),
    used(
        "tool_choice",
        "`auto`, `none`, `required`, or one function by name; the last two are enforced while decoding",
    ),
    used("parallel_tool_calls", "`false` ends the answer after one call"),
    used(
        "response_format",
        "`text`, `json_object`, `json_schema`; enforced while decoding, see docs/structured.md",
    ),
    used("reasoning_effort", "`low`, `high`, `max` (default); see Reasoning effort"),
    used("max_completion_tokens", "reasoning included; default: 131,072, or what is left of the context"),
    used("max_tokens", "older name; `max_completion_tokens` wins when both are given"),
    used("temperature", "0 to 2, default 1; 0 always takes the likeliest token"),
    used("top_p", "above 0, at most 1, default 0.95"),
    used("top_k", "only the k likeliest tokens; 0 or -1, the default: all"),
    used("min_p", "0 to 1, default 0; only tokens at least this many times as likely as the likeliest"),
    used("presence_penalty", "-2 to 2, default 0; for tokens generated before"),
    used("frequency_penalty", "-2 to 2, default 0; for each time a token was generated before"),
    used("repetition_penalty", "0.01 to 100, default 1; for tokens in the prompt or generated before"),
    used("logit_bias", "token id to a number from -100 to 100, at most 1024 ids"),
    used("logprobs", "`true` returns log-probabilities; see Log-probabilities"),
    used("top_logprobs", "0 to 20 alternatives per token; needs `logprobs`"),
    used("min_tokens", "the answer's end is not sampled before that many tokens; default 0"),
    used("ignore_eos", "`true`: the answer's end is never sampled, tokens are counted up to the limit"),
    used("seed", "same seed, same request: same answer"),
    used("stop", "a string or up to 5, each 1 to 32 bytes; matched in `content` only"),
    used("stream", "server-sent events"),
    used("stream_options", "`include_usage`"),
    kept("user", "no effect"),
    kept("metadata", "no effect"),
    kept("safety_identifier", "no effect"),
    kept("prompt_cache_key", "no effect"),
    kept("prompt_cache_options", "no effect"),
    only("n", "1: one answer per request", lambda v: v == 1 and not isinstance(v, bool)),
    only("modalities", '`["text"]`', lambda v: v == ["text"]),
    only("store", "`false`: nothing is stored", lambda v: v is False),
    only("service_tier", "`auto` or `default`", lambda v: v in ("auto", "default")),
    refused("thinking", "this family takes no `thinking` object and always reasons; set `reasoning_effort`"),
    refused("reasoning", "set `reasoning_effort` instead"),
    refused("chat_template_kwargs", "set `reasoning_effort`; the template has no other switch"),
    refused("functions", "superseded by `tools`"),
    refused("function_call", "superseded by `tool_choice`"),
    refused("audio", "text only"),
    refused("prediction", "not supported"),
    refused("web_search_options", "not supported; offer a tool"),
    refused("verbosity", "not supported; say it in a message"),
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

FIXED: dict[str, float] = {
    "temperature": 1,
    "top_p": 0.95,
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""Sampling parameters that the published model fixes, and the one value of each."""


def check_fixed_sampling(tree: Mapping[str, Any]) -> None:
    """Refuse what the published model's own API refuses, in its words.

    Raises:
        RequestError: a parameter of `FIXED` with another value.
    """
    for name, value in FIXED.items():
        sent = tree.get(name)
        if sent is not None and (isinstance(sent, bool) or sent != value):
            raise RequestError(f"invalid {name}: only {value:g} is allowed for this model", param=name)


def check_fields(tree: Mapping[str, Any], table: Sequence[Field]) -> dict[str, Any]:
    """Refuse what cannot be honoured, by name; return the kept fields.

    A null field is an absent field.

    Raises:
        RequestError: naming the first field that is unknown, refused, or holds an unusable value.
    """
    known = {field.name: field for field in table}
    carried: dict[str, Any] = {}
    for name, value in tree.items():
        if value is None:
            continue
        field = known.get(name)
        if field is None:
            raise RequestError(
                f"unknown field {name!r}; the fields of a request are listed in docs/api.md",
                param=name,
                code="unknown_parameter",
            )
        if field.treatment == "refused":
            raise RequestError(f"{name} is not accepted: {field.note}", param=name, code=field.code)
        if field.accepts is not None and not field.accepts(value):
            raise RequestError(
                f"{name}={value!r:.80} is not supported; accepted is {field.note}",
                param=name,
                code="unsupported_value",
            )
        if field.treatment == "kept":
            carried[name] = value
    return carried


def effort(value: Any, at: str = "reasoning_effort") -> str:
    """The trained effort that the value of the field ``at`` runs as; absent means ``max``.

    Raises:
        RequestError: ``none`` and its kin, and any other value outside the table.
    """
    if value is None:
        return "max"
    if isinstance(value, str) and value in EFFORTS:
        return EFFORTS[value]
    if isinstance(value, str) and value in EFFORTS_OFF:
        message = f"{at} {value!r}: this model always reasons and has no off switch; 'low' is the least"
    else:
        message = f"{at} {value!r:.80} is unknown; use one of {', '.join(EFFORTS)}"
    raise RequestError(message, param=at)


def markdown(table: Sequence[Field]) -> str:
    """A table as it stands in docs/api.md."""
    words = {"used": "used", "kept": "kept, no effect", "only": "one value", "refused": "refused"}
    rows = [f"| `{f.name}` | {words[f.treatment]} | {f.note} |" for f in table]
    return "\n".join(["| field | treatment | note |", "|---|---|---|", *rows])
