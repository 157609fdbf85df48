"""One answer on its way to one client: as a stream or whole, ended by whichever side gives up first.

Nothing of a conversation is ever logged: a line holds ids, counts, codes and durations only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Message, Receive, Scope, Send

from gossamer.gateway.exchange import note_error, note_outcome
from gossamer.gateway.logs import place_of
from gossamer.gateway.upstream import Context, Upstream
from gossamer.protocol.completion import Collector
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import Event, Finish, Usage
from gossamer.protocol.request import Request
from gossamer.protocol.wire import Wire

STALL_S = 60.0
"""How long a client may leave what it was sent unread."""
PING_S = 10.0
"""How long a stream is silent at most: the most impatient client known warns after 20 seconds."""
LOG = logging.getLogger("gossamer.gateway")
_JSON = [(b"content-type", b"application/json")]
_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ClientGone(Exception):
    """The client closed the connection: there is nobody left to tell anything."""


class Answer:
    """An ASGI response that relays one upstream's events.

    The headers are sent with the first event, so that a refusal before it has its own HTTP status.  A
    stream that has been silent for ``ping_s`` seconds is told that somebody is still at work, even before
    the first event.
    The upstream's iterator is closed as soon as the client is gone or ``closing`` is set, and when the
    client takes nothing for ``stall_s`` seconds: behind it others may wait for the engine.
    """

    def __init__(
        self,
        request: Request,
        upstream: Upstream,
        wire: Wire,
        *,
        request_id: str,
        closing: asyncio.Event,
        stall_s: float = STALL_S,
        ping_s: float = PING_S,
    ):
        self._request = request
        self._upstream = upstream
        self._wire = wire
        self._id = request_id
        self._closing = closing
        self._stall_s = stall_s
        self._ping_s = ping_s
        self._sent_s = time.monotonic()
        self._send: Send | None = None
        self._started = False
        self._usage: Usage | None = None
        self._finish = "none"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; never raises for anything that an upstream or a client does."""
        began = time.perf_counter()
        self._send = send
        interrupts = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._closing.wait())]
        outcome = "ok"
        try:
            await self._relay(interrupts)
        except TimeoutError:
            outcome = "client_stalled"
        except (ClientGone, OSError):
            outcome = "client_gone"
        except ApiError as error:
            outcome = error.code or error.type
            note_error(scope, error)
            await self._fail(error)
        except Exception as error:
            outcome = place_of(error)
            LOG.error("request %s failed: %s", self._id, outcome)
            note_outcome(scope, "internal_error")
            await self._fail(ApiError(f"internal error; request id {self._id}", code="internal_error"))
        finally:
            for task in interrupts:
                task.cancel()
            await asyncio.gather(*interrupts, return_exceptions=True)
            if outcome != "ok":
                note_outcome(scope, outcome)
            self._log(outcome, time.perf_counter() - began)

    async def _relay(self, interrupts: Sequence[asyncio.Task[Any]]) -> None:
        collector = Collector()
        events = self._upstream.send(self._request, Context(request_id=self._id))
        async with aclosing(self._interruptible(events, interrupts)) as relayed:
            async for event in relayed:
                if event is not None:
                    self._note(event)
                    collector.write(event)
                if self._request.stream:
                    await self._push(b"" if event is None else self._wire.write(event))
        if self._finish == "none":
            raise ApiError("the upstream ended without finishing", status=502, code="upstream_incomplete")
        if self._request.stream:
            await self._push(self._wire.end(), last=True)
        else:
            await self._whole(200, self._wire.whole(collector.completion()))

    async def _interruptible(
        self, events: AsyncIterator[Event], interrupts: Sequence[asyncio.Task[Any]]
    ) -> AsyncGenerator[Event | None]:
        """The upstream's events, and None now and then while it is silent."""
        try:
            while True:
                step = asyncio.ensure_future(_step(events))
                try:
                    while not await self._wait(step, interrupts):
                        yield None
                finally:
                    if not step.done():
                        step.cancel()
                        await asyncio.gather(step, return_exceptions=True)
                # Looked at in any case: asyncio logs a failure that nobody looks at, with its text.
                failure = None if step.cancelled() else step.exception()
                self._check(interrupts, abandoned=step.cancelled())
                if failure is not None:
                    raise failure
                event = step.result()
                if event is None:
                    return
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def _wait(
        self, step: asyncio.Future[Event | None], interrupts: Sequence[asyncio.Task[Any]]
    ) -> bool:
        """Whether the step is over or something else ended the answer; False when it is time for a ping."""
        done, _ = await asyncio.wait(
            {step, *interrupts}, timeout=self._ping_s, return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    @staticmethod
    def _check(interrupts: Sequence[asyncio.Task[Any]], *, abandoned: bool) -> None:
        gone, closing = interrupts
        if gone.done():
            raise ClientGone
        if abandoned or closing.done():
            raise ApiError("the server is shutting down", status=503, code="server_shutdown")

    def _note(self, event: Event) -> None:
        if isinstance(event, Usage):
            self._usage = event
        elif isinstance(event, Finish):
            self._finish = event.reason

    async def _push(self, data: bytes, *, last: bool = False) -> None:
        """Send a piece of the stream; of nothing only as much as a long silence asks for."""
        if not data and not last:
            if time.monotonic() - self._sent_s < self._ping_s:
                return
            data = self._wire.ping()
        self._sent_s = time.monotonic()
        if not self._started:
            await self._deliver(
                {"type": "http.response.start", "status": 200, "headers": self._headers(_STREAM)}
            )
            self._started = True
        await self._deliver({"type": "http.response.body", "body": data, "more_body": not last})

    async def _whole(self, status: int, tree: dict[str, Any]) -> None:
        body = msgspec.json.encode(tree)
        headers = self._headers([*_JSON, (b"content-length", str(len(body)).encode())])
        self._started = True
        await self._deliver({"type": "http.response.start", "status": status, "headers": headers})
        await self._deliver({"type": "http.response.body", "body": body})

    async def _deliver(self, message: Message) -> None:
        assert self._send is not None
        async with asyncio.timeout(self._stall_s):
            await self._send(message)

    async def _fail(self, error: ApiError) -> None:
        try:
            if not self._started:
                await self._whole(error.status, self._wire.error_body(error))
            elif self._request.stream:
                await self._push(self._wire.fail(error), last=True)
        except OSError:
            # The client left while it was being told; there is nothing more to do.
            return

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        named = (b"x-request-id", self._id.encode())
        warnings = [
            (b"x-gossamer-warning", text.encode("ascii", "replace")) for text in self._request.warnings
        ]
        return [*headers, named, *warnings]

    def _log(self, outcome: str, duration_s: float) -> None:
        usage = self._usage or Usage(prompt_tokens=0, completion_tokens=0)
        # At the end of every request its record is logged; this says what the relay itself saw.
        LOG.debug(
            "answer id=%s model=%s stream=%s outcome=%s finish=%s "
            "prompt_tokens=%d completion_tokens=%d duration_s=%.3f",
            self._id,
            self._request.model,
            self._request.stream,
            outcome,
            self._finish,
            usage.prompt_tokens,
            usage.completion_tokens,
            duration_s,
        )


async def _step(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
