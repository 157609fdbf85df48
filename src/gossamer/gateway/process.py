"""A serving process: a port that is taken at once, and signals that end it with exit code 0."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from gossamer.errors import GossamerError

LOG_LEVELS = ("debug", "info", "warning", "error")
# An answer in flight is ended by an event at once; this bounds a client that does not read it.
GRACE_S = 5


class ServeError(GossamerError):
    """The server cannot start."""


class _Server(uvicorn.Server):
    """Ends answers in flight on SIGINT or SIGTERM and lets the process leave with code 0."""

    def __init__(self, app: Starlette, on_ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_S
            )
        )
        self._closing = app.state.closing
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Requests are answered and signals are heard from here on."""
        await super().startup(sockets=sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal; a second one does not wait for clients."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._closing.set()


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


def address(sock: socket.socket) -> str:
    """The base URL of the API behind a listening socket."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if sock.family == socket.AF_INET6 else host
    return f"http://{shown}:{port}/v1"


def run(app: Starlette, sock: socket.socket, *, on_ready: Callable[[], None]) -> None:
    """Serve an app made by `gossamer.gateway.app.create_app` until SIGINT or SIGTERM."""
    _Server(app, on_ready).run(sockets=[sock])


def configure_logging(level: str) -> None:
    """Log to stderr.  The front writes one line per request; uvicorn is heard when something is wrong.

    Raises:
        ServeError: an unknown level.
    """
    if level not in LOG_LEVELS:
        raise ServeError(f"log level {level!r} is unknown; use one of {', '.join(LOG_LEVELS)}")
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def say(text: str) -> None:
    """Tell the person who started the process."""
    print(text, file=sys.stderr, flush=True)
