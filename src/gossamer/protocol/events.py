"""What an upstream says while it answers, independent of any wire format.

An answer is: a `PromptUsage` where it is known, any deltas, then one `Usage`, then one `Finish`; or an
`ApiError` raised instead.
Text deltas are never empty, and a tool call's fragments come between its begin and its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True)
class ReasoningDelta:
    """More of the chain of thought."""

    text: str


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """A token, and the natural logarithm of the probability that the model gave it.

    Attributes:
        text: The token; where it holds a piece of a character, U+FFFD stands for that.
        raw: Its bytes; None for a control token, which has a name only.
        logprob: Finite, at most 0.
        top: The likeliest tokens at its place, likeliest first; theirs is empty.
    """

    text: str
    raw: bytes | None
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class ContentDelta:
    """More of the visible answer.

    ``logprobs`` holds the tokens whose text begins in this delta, if they were asked for.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ToolCallBegin:
    """A tool call opens; ``index`` counts the calls of this answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ToolCallArguments:
    """More of the JSON text of one call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, kw_only=True)
class ToolCallEnd:
    """The call's arguments are complete."""

    index: int


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Token counts of the whole exchange.

    ``prompt_tokens`` includes ``cached_tokens``; ``completion_tokens`` includes ``reasoning_tokens``.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class PromptUsage:
    """What was read before the first token: some formats begin with it.  `Usage` says it again."""

    prompt_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True)
class Finish:
    """The answer is over; ``stop`` is the stop string that ended it, if one did."""

    reason: FinishReason
    stop: str | None = None


Event = (
    PromptUsage
    | ReasoningDelta
    | ContentDelta
    | ToolCallBegin
    | ToolCallArguments
    | ToolCallEnd
    | Usage
    | Finish
)
