"""Any HTTP server as a process: started on a free port, waited for, asked, ended."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

START_S = 120.0
ANSWER_S = 1200.0


class ServerProcess:
    """A context manager.

    Args:
        command: "PORT" in it becomes the port.
        ready: A path that answers once the server does.
        log: Where its output goes.
    """

    def __init__(self, command: Sequence[str], *, ready: str, log: Path) -> None:
        self.command, self.ready, self.log = command, ready, log

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.began = time.perf_counter()
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [part.replace("PORT", str(self.port)) for part in self.command],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        while time.perf_counter() - self.began < START_S and self.process.poll() is None:
            try:
                self.ask(self.ready)
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.005)
            else:
                return self
        self.__exit__()
        raise RuntimeError(f"{self.command[0]} did not start:\n{self.log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON, or its text where it is none; a body is posted."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def peak_bytes(self) -> int:
        """The process's largest resident set so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return 1024 * int(found[1])
