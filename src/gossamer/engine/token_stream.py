"""The tokens of one request on their way from the worker thread to whoever awaits them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any

from gossamer.engine.api import EngineError, TokenEvent


class Channel:
    """A queue from one thread to one coroutine of any event loop."""

    def __init__(self) -> None:
        self._items: deque[TokenEvent | EngineError] = deque()
        self._lock = threading.Lock()
        self._waiter: asyncio.Future[None] | None = None
        self.cached_tokens = 0

    def put(self, item: TokenEvent | EngineError) -> None:
        """Add an item; callable from any thread."""
        with self._lock:
            self._items.append(item)
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            # A loop that was closed has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def get(self) -> TokenEvent | EngineError:
        """The next item, once there is one.

        Raises:
            RuntimeError: another coroutine waits already.
        """
        while True:
            with self._lock:
                if self._items:
                    return self._items.popleft()
                if self._waiter is not None and not self._waiter.done():
                    raise RuntimeError("another coroutine is already waiting for this request's next token")
                waiter = self._waiter = asyncio.get_running_loop().create_future()
            await waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class TokenStream(AsyncGenerator[TokenEvent, None]):
    """The tokens of one request.  Closing it, or dropping it, ends the request.

    Args:
        channel: Where the tokens come from.
        cancel: Called once when it is closed before its end; from any thread, even within garbage collection.
    """

    def __init__(self, channel: Channel, cancel: Callable[[], None]):
        self._channel = channel
        self._cancel = cancel
        self._ended = False

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt found in the prefix cache; known from the first token on."""
        return self._channel.cached_tokens

    async def asend(self, value: None) -> TokenEvent:
        """The next token.

        Raises:
            StopAsyncIteration: after the last.
            EngineError: the request failed.
        """
        if self._ended:
            raise StopAsyncIteration
        try:
            item = await self._channel.get()
        except (asyncio.CancelledError, GeneratorExit):
            self._close()
            raise
        if isinstance(item, EngineError):
            self._ended = True
            raise item
        self._ended = item.finish_reason is not None
        return item

    async def athrow(self, typ: Any, val: object = None, tb: TracebackType | None = None) -> TokenEvent:
        """End the request and raise what is given."""
        self._close()
        error = typ if isinstance(typ, BaseException) else val if isinstance(val, BaseException) else typ()
        raise error.with_traceback(tb)

    async def aclose(self) -> None:
        """End the request, unless it has ended."""
        self._close()

    def _close(self) -> None:
        if not self._ended:
            self._ended = True
            self._cancel()

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            self._close()
