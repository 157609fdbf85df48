"""The seam between one answer and the format that its client reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gossamer.protocol.completion import Completion
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import Event


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """What identifies one answer.  ``created`` is Unix time in whole seconds; ``id`` has its prefix."""

    id: str
    model: str
    created: int


class Wire(Protocol):
    """Writes one answer in one format: as server-sent events, or whole.

    The stream methods return bytes to send, in order; nothing they return is ever taken back.
    """

    def write(self, event: Event) -> bytes:
        """What one event adds to the stream; may be empty."""
        ...

    def ping(self) -> bytes:
        """What to send after a long silence, so that nobody between takes the connection for dead."""
        ...

    def end(self) -> bytes:
        """The end of a stream whose `gossamer.protocol.events.Finish` was written."""
        ...

    def fail(self, error: ApiError) -> bytes:
        """The end of a stream that broke off."""
        ...

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The JSON body of an answer that is not streamed."""
        ...

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """The JSON body of an error that came before anything was sent."""
        ...
