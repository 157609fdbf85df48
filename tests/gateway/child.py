"""Serving processes as a person runs them: with a port and signals."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

GOSSAMER = str(Path(sys.executable).parent / "gossamer")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ECHO = """
from gossamer.gateway import process
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream
process.configure_logging("info")
with process.bind("127.0.0.1", 0) as sock:
    app = create_app({"echo": EchoUpstream(), "slow": EchoUpstream(delay_s=0.2)})
    process.run(app, sock, on_ready=lambda: process.say(f"serving echo at {process.address(sock)}"))
process.say("stopped")
"""


class Child:
    """A running server; ``url`` is known once it says that it serves."""

    def __init__(self, command: Sequence[str]):
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.said = ""
        while "serving" not in self.said:
            line = self._stderr().readline()
            assert line, f"the server ended while starting:\n{self.said}"
            self.said += line
        found = re.search(r"serving \S+ at (http://\S+?)/v1", self.said)
        assert found, self.said
        self.url = found.group(1)
        self.port = int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    def _stderr(self):
        assert self._process.stderr is not None
        return self._process.stderr

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Exit code; what it still said is added to ``said``."""
        self.said += self._stderr().read()
        return self._process.wait(timeout=60)

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stderr().close()


@contextmanager
def child(*command: str) -> Iterator[Child]:
    """A server process that is gone afterwards."""
    process = Child(command)
    try:
        yield process
    finally:
        process.end()


def is_closed(port: int) -> bool:
    """Whether nobody answers there."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
