"""A real server on an ephemeral port, in a thread of the test process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette

from gossamer.gateway import process


@contextmanager
def live(app: Starlette) -> Iterator[str]:
    """Serve ``app`` as `gossamer serve` does and yield its base URL."""
    with process.bind("127.0.0.1", 0) as sock:
        server = process.Server(app, on_ready=lambda: None, drain_s=0.5)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive(), "the server did not stop"
