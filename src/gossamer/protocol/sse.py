"""Server-sent events: an encoder, and a decoder that does not care where the bytes were cut.

Grammar: the WHATWG HTML standard, section "Interpreting an event stream".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

DONE = "[DONE]"
# JSON leaves these as they are; clients that split text into lines would cut an event at them.
_LINE_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, kw_only=True)
class ServerSentEvent:
    """One dispatched event."""

    data: str
    event: str = "message"
    id: str | None = None


def encode(data: str, *, event: str | None = None) -> bytes:
    """One event as bytes; every line of ``data`` gets its own ``data:`` field.

    Raises:
        ValueError: ``event`` holds a line break, which would forge a second field.
    """
    if event is not None and ("\n" in event or "\r" in event):
        raise ValueError(f"an SSE event name cannot hold a line break: {event!r}")
    head = "" if event is None else f"event: {event}\n"
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


def encode_json(value: Any, *, event: str | None = None) -> bytes:
    """One event whose data is a JSON value, on one line by any definition of a line."""
    return encode(msgspec.json.encode(value).decode().translate(_LINE_BREAKS), event=event)


def encode_comment(text: str) -> bytes:
    """A comment line: keeps a connection warm, means nothing to a client."""
    return b"".join(f": {line}\n".encode() for line in text.splitlines() or [""]) + b"\n"


class Decoder:
    """Feed bytes in any pieces, get whole events; one piece or one byte at a time is the same."""

    def __init__(self) -> None:
        self._pending = b""
        self._scanned = 0
        self._at_start = True
        self._data: list[str] = []
        self._event = ""
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Events completed by ``piece``.  An event cut off by the end of the stream never appears."""
        self._pending += piece
        events = []
        while (line := self._take_line()) is not None:
            if (event := self._line(line)) is not None:
                events.append(event)
        return events

    def _take_line(self) -> bytes | None:
        found = _LINE_END.search(self._pending, self._scanned)
        # A CR at the very end may be the first half of CRLF: wait until the next byte is known.
        if found is None or (found.group() == b"\r" and found.end() == len(self._pending)):
            self._scanned = len(self._pending) if found is None else found.start()
            return None
        line, self._pending = self._pending[: found.start()], self._pending[found.end() :]
        self._scanned = 0
        return line

    def _line(self, raw: bytes) -> ServerSentEvent | None:
        if self._at_start:
            self._at_start = False
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8", errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return ServerSentEvent(data="\n".join(data), event=event or "message", id=self._id)
