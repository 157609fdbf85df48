"""The seam of the gateway: whatever can answer a request, local engine or remote server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gossamer.protocol.events import Event
from gossamer.protocol.request import Request


@dataclass(kw_only=True)
class Meter:
    """Tokens of one request so far: a client that leaves in the middle has used them all the same.

    ``prompt_tokens`` includes ``cached_tokens``; None is what nobody has counted yet.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int = 0
    reasoning_tokens: int | None = None

    @property
    def total(self) -> int:
        """Read and written together."""
        return (self.prompt_tokens or 0) + self.completion_tokens


@dataclass(frozen=True, kw_only=True)
class Context:
    """What travels beside a request: nothing in it changes the answer.

    An upstream that knows its tokens one by one counts them in ``meter`` as it goes; its `Usage` at the end
    replaces that count.  ``tenant`` tells whose request it is, "" where nobody is told apart: tenants share
    the work fairly and no cached prefix, whose speed would tell one what another has sent.
    """

    request_id: str
    meter: Meter = field(default_factory=Meter)
    tenant: str = ""


class Upstream(Protocol):
    """Answers requests for one model."""

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may take together."""
        ...

    async def tokenize(self, request: Request) -> Sequence[int]:
        """The prompt of a request as token ids; nothing is generated.

        Raises:
            gossamer.protocol.errors.ApiError: the request cannot be a prompt.
        """
        ...

    def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        """Answer one request.

        Returns an iterator of a `PromptUsage` where it is known, deltas, one `Usage`, and one `Finish`.
        Closing it, or cancelling the task that waits for its next event, stops the work behind it.

        Raises:
            gossamer.protocol.errors.ApiError: by the call or by any step of the iterator.  Before the
                first event it becomes an HTTP status, after it an error event in the stream.
        """
        ...
