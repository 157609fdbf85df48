"""Upstreams that do exactly what a test tells them, and say how they ended."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from gossamer.gateway.upstream import Context
from gossamer.protocol.events import Event
from gossamer.protocol.request import Request


class ScriptedUpstream:
    """Yields the given events; an exception among them is raised, `HANG` waits for ever."""

    HANG = object()
    max_context = 4096

    def __init__(self, script: Sequence[Any]):
        self._script = script
        self.closed = asyncio.Event()
        self.num_sent = 0

    async def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        try:
            for step in self._script:
                if isinstance(step, BaseException):
                    raise step
                if step is self.HANG:
                    await asyncio.Event().wait()
                self.num_sent += 1
                yield step
        finally:
            self.closed.set()
