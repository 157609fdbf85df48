"""The serving process: port first, then the model, then requests until a signal."""

from __future__ import annotations

import errno
import logging
import socket
import sys
from types import FrameType

import uvicorn

from gossamer.errors import GossamerError
from gossamer.gateway.app import create_app
from gossamer.protocol.request import Passback
from gossamer.server.load import load

LOG_LEVELS = ("debug", "info", "warning", "error")
# An answer in flight is ended by an event at once; this bounds a client that does not read it.
GRACE_S = 5


class ServeError(GossamerError):
    """The server cannot start."""


class _Server(uvicorn.Server):
    """Ends answers in flight on SIGINT or SIGTERM and lets the process leave with code 0."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the signal; a second one does not wait for clients."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.config.app.state.closing.set()  # type: ignore[union-attr]


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


def serve(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    served_model_name: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    log_level: str = "info",
    passback: Passback = "require",
) -> int:
    """Serve one model until SIGINT or SIGTERM; returns the exit code.

    Raises:
        ServeError: port taken or a bad log level.
        gossamer.errors.GossamerError: the model cannot be loaded.
    """
    if log_level not in LOG_LEVELS:
        raise ServeError(f"log level {log_level!r} is unknown; use one of {', '.join(LOG_LEVELS)}")
    with bind(host, port) as sock:
        _say(f"loading {model}")
        loaded = load(model, seed=seed, threads=threads, warn=lambda text: _say(f"WARNING: {text}"))
        name = served_model_name or loaded.name
        app = create_app({name: loaded.upstream}, passback=passback, on_close=[loaded.engine.close])
        _configure_logging(log_level)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=GRACE_S
        )
        shown = f"[{host}]" if ":" in host else host
        _say(f"serving {name} at http://{shown}:{sock.getsockname()[1]}/v1 (Ctrl-C stops)")
        _Server(config).run(sockets=[sock])
    _say("stopped")
    return 0


def _configure_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # The front writes one line per request itself; uvicorn is heard only when something is wrong.
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    for chatty in ("asyncio", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
