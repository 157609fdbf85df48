"""Prints an answer's events as they arrive: reasoning dim, calls on lines of their own."""

from __future__ import annotations

import os
from typing import TextIO

from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    Usage,
)

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


class Printer:
    """Writes events to a terminal or a pipe; with colour only where it can be shown."""

    def __init__(self, out: TextIO, *, color: bool | None = None):
        self._out = out
        self._color = _wants_color(out) if color is None else color
        self._section: object = None
        self._at_line_start = True
        self.usage: Usage | None = None
        self.finish: str | None = None

    def write(self, event: Event) -> None:
        """Print one event."""
        match event:
            case ReasoningDelta():
                self._begin("reasoning", "reasoning", _DIM)
                self._put(event.text)
            case ContentDelta():
                self._begin("answer", "answer", "")
                self._put(event.text)
            case ToolCallBegin():
                self._begin(("call", event.index), f"tool call {event.index}", "")
                self._put(event.name + " ")
            case ToolCallArguments():
                self._put(event.text)
            case Usage():
                self.usage = event
            case Finish():
                self.finish = event.reason
                self.close()
        self._out.flush()

    def close(self) -> None:
        """End the open section; call it when an answer breaks off."""
        if self._section is not None:
            self._style(_PLAIN)
            self._line_end()
            self._section = None

    def _begin(self, section: object, label: str, style: str) -> None:
        if section == self._section:
            return
        self.close()
        self._section = section
        self._style(_BOLD)
        self._out.write(f"[{label}]")
        self._style(_PLAIN)
        self._out.write("\n")
        self._at_line_start = True
        self._style(style)

    def _put(self, text: str) -> None:
        if text:
            self._out.write(printable(text))
            self._at_line_start = text.endswith("\n")

    def _line_end(self) -> None:
        if not self._at_line_start:
            self._out.write("\n")
            self._at_line_start = True

    def _style(self, code: str) -> None:
        if self._color:
            self._out.write(code)


def printable(text: str) -> str:
    """Text without control characters: a model's output must not steer the terminal."""
    return "".join(c if c in "\n\t" or (c >= " " and not "\x7f" <= c <= "\x9f") else "\ufffd" for c in text)


def speed_line(*, num_prompt: int, num_generated: int, duration_s: float) -> str:
    """One line on how fast it went; the time includes reading the prompt."""
    rate = num_generated / duration_s if duration_s > 0 else 0.0
    return (
        f"{num_prompt} prompt + {num_generated} generated tokens in {duration_s:.2f} s, "
        f"{rate:.1f} generated tokens/s (measured)"
    )


def _wants_color(out: TextIO) -> bool:
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
