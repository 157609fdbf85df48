"""One whole answer as a value: what the events of an upstream amount to, in no wire format yet."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    PromptUsage,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.messages import ToolCall


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A finished answer.

    Attributes:
        reasoning: Empty where the model thought nothing; a client has to send it back all the same.
        stop: The stop string that ended it, if one did.
        usage: None where the upstream counted nothing.
    """

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: FinishReason
    stop: str | None = None
    usage: Usage | None = None


class Collector:
    """Puts the events of one answer together."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._opened: dict[int, ToolCallBegin] = {}
        self._arguments: dict[int, list[str]] = {}
        self.usage: Usage | None = None
        self.finish: Finish | None = None

    def write(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case ReasoningDelta():
                self._reasoning.append(event.text)
            case ContentDelta():
                self._content.append(event.text)
                self._logprobs += event.logprobs
            case ToolCallBegin():
                self._opened[event.index] = event
                self._arguments[event.index] = []
            case ToolCallArguments():
                self._arguments[event.index].append(event.text)
            case Usage():
                self.usage = event
            case Finish():
                self.finish = event
            case PromptUsage() | ToolCallEnd():
                pass

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            ValueError: no `Finish` was seen, so the answer is not whole.
        """
        if self.finish is None:
            raise ValueError("the answer has not finished")
        calls = (
            ToolCall(id=call.id, name=call.name, arguments="".join(self._arguments[index]))
            for index, call in sorted(self._opened.items())
        )
        return Completion(
            reasoning="".join(self._reasoning),
            content="".join(self._content),
            tool_calls=tuple(calls),
            logprobs=tuple(self._logprobs),
            finish=self.finish.reason,
            stop=self.finish.stop,
            usage=self.usage,
        )
