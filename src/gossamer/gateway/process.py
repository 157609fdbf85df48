"""A serving process: a port that is taken at once, and signals that end it with exit code 0."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gossamer.errors import GossamerError
from gossamer.gateway import logs
from gossamer.gateway.service import MAX_HEADER_BYTES, is_loopback
from gossamer.protocol.errors import RequestError

DRAIN_S = 30.0
"""How long answers in flight may go on once the process was asked to end."""
GRACE_S = 5
"""How long after that a client may take to read that its answer was ended."""
HEAD_S = 20.0
"""How long a client may take to send the head of a request."""
_HEAD_ROOM = 4096
"""For the request line, which the count of header fields leaves out."""


class ServeError(GossamerError):
    """The server cannot start."""


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 whose heads end: the parser itself would collect an endless one until memory is gone."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # Asked for by whatever handler the root logger has, whatever the configuration says; it holds paths.
        self.access_log = False
        self._head_bytes = 0
        self._in_head = True
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES + _HEAD_ROOM:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._refuse, HTTPStatus.REQUEST_TIMEOUT)

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head = False
        self._stop_clock()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Called where the parser gives up."""
        self._refuse(HTTPStatus.BAD_REQUEST)

    def _refuse(self, status: HTTPStatus) -> None:
        self._stop_clock()
        text = f"this is not a request that can be read: {status.phrase}"
        body = json.dumps(RequestError(text, code="invalid_http", status=status).body()).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        cycle = self.cycle
        # Within an answer's body a second head would be taken for more of the body.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(head.encode() + body)
        if cycle is not None and not cycle.response_complete:
            # Whoever answers it is told that nobody listens, and nothing follows what was just written.
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Server(uvicorn.Server):
    """Finishes the answers in flight on SIGINT or SIGTERM and lets the process leave with code 0.

    The first signal stops new requests and gives answers ``drain_s`` seconds; after them, or at a second
    signal, those that go on end with an error event; a third waits for nobody.

    Args:
        app: Made by `gossamer.gateway.app.create_app`.
        on_ready: Called once requests are answered.
        drain_s: See above.
    """

    def __init__(self, app: Starlette, on_ready: Callable[[], None], *, drain_s: float = DRAIN_S):
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                timeout_graceful_shutdown=int(drain_s) + GRACE_S,
            )
        )
        self._closing, self._draining = app.state.closing, app.state.draining
        self._on_ready = on_ready
        self._drain_s = drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Requests are answered and signals are heard from here on."""
        await super().startup(sockets=sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the answers in flight, and for a while only."""
        self._draining.set()
        timer = asyncio.get_running_loop().call_later(self._drain_s, self._closing.set)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal."""
        if not self.should_exit:
            self.should_exit = True
            self._draining.set()
        elif not self._closing.is_set():
            self._closing.set()
        else:
            self.force_exit = True


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one.

    Raises:
        ServeError: the port is taken or the address cannot be used, in one line with the fix.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        # Listening right away: a second server on this port fails now, not after loading its model.
        sock.listen(2048)
    except (OSError, OverflowError) as error:
        sock.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise ServeError(
                f"port {port} on {host} is taken; stop what listens there "
                f"or choose another with --port {port + 1}"
            ) from None
        raise ServeError(f"cannot listen on {host} port {port}: {error}") from None
    return sock


def check_exposure(host: str, *, has_keys: bool, allow_public: bool) -> None:
    """Refuse to let other machines in without keys, unless that is what was asked for.

    Raises:
        ServeError: naming the ways out.
    """
    if not (has_keys or allow_public or is_loopback(host)):
        raise ServeError(
            f"--host {host} lets other machines in, and nobody would need a key; give --api-keys FILE "
            "(made by gossamer keys add), or --allow-public-without-keys if strangers are kept out otherwise"
        )


def address(sock: socket.socket) -> str:
    """The base URL of the API behind a listening socket."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if sock.family == socket.AF_INET6 else host
    return f"http://{shown}:{port}/v1"


def run(
    app: Starlette, sock: socket.socket, *, on_ready: Callable[[], None], drain_s: float = DRAIN_S
) -> None:
    """Serve an app made by `gossamer.gateway.app.create_app` until SIGINT or SIGTERM."""
    Server(app, on_ready, drain_s=drain_s).run(sockets=[sock])


def configure_logging(level: str, style: logs.LogFormat = "text") -> None:
    """Log to stderr; see `gossamer.gateway.logs`.

    Raises:
        ServeError: an unknown level or style.
    """
    try:
        logs.configure(level, style)
    except logs.LogError as error:
        raise ServeError(str(error)) from None


def say(text: str) -> None:
    """Tell the person who started the process."""
    print(text, file=sys.stderr, flush=True)
