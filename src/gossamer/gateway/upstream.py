"""The seam of the gateway: whatever can answer a request, local engine or remote server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from gossamer.protocol.events import Event
from gossamer.protocol.request import Request


@dataclass(frozen=True, kw_only=True)
class Context:
    """What travels beside a request: nothing in it changes the answer."""

    request_id: str


class Upstream(Protocol):
    """Answers requests for one model."""

    def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        """Answer one request.

        Returns an iterator of deltas, then one `Usage`, then one `Finish`.  Closing it, or cancelling
        the task that waits for its next event, stops the work behind it.

        Raises:
            gossamer.protocol.errors.ApiError: by the call or by any step of the iterator.  Before the
                first event it becomes an HTTP status, after it an error event in the stream.
        """
        ...
