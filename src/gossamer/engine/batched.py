"""The engine core as a `gossamer.engine.api.Engine`: a worker thread steps, coroutines await their tokens."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from gossamer.engine.api import (
    NO_OPTIONS,
    Embeddings,
    EngineError,
    RequestOptions,
    SamplingParams,
    SubmitError,
    TokenEvent,
)
from gossamer.engine.core import EngineCore, EngineStats, StepEvent
from gossamer.engine.metrics import Metrics
from gossamer.engine.runner import Runner
from gossamer.engine.settings import EngineSettings, SettingsError
from gossamer.engine.token_stream import Channel, TokenStream

LOG = logging.getLogger("gossamer.engine")


class QueueFullError(SubmitError):
    """As many requests wait as may; one that comes later may be served.

    Attributes:
        max_queue: Requests that may wait.
    """

    def __init__(self, *, max_queue: int):
        self.max_queue = max_queue
        super().__init__(f"the queue is full: {max_queue} requests wait already; try again later")


@dataclass(frozen=True)
class _Submit:
    request_id: int
    token_ids: list[int]
    params: SamplingParams
    options: RequestOptions
    embeddings: tuple[Embeddings, ...]
    arrival_s: float


@dataclass(frozen=True)
class _Cancel:
    request_id: int


@dataclass(frozen=True)
class _Close:
    pass


_Command = _Submit | _Cancel | _Close


class BatchedEngine:
    """See `gossamer.engine.api.Engine`.

    Args:
        runner: The model; used by the worker thread only.
        settings: See `EngineSettings`.
        max_queue: Requests that may wait beyond those that may run; None has no limit.
        clock: Seconds that never go back.

    Raises:
        SettingsError: settings that cannot work, or not with this runner.
    """

    def __init__(
        self,
        runner: Runner,
        settings: EngineSettings | None = None,
        *,
        max_queue: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if max_queue is not None and max_queue < 0:
            raise SettingsError(f"max_queue must be at least 0, got {max_queue}")
        self._core = EngineCore(runner, settings or EngineSettings(), clock=clock)
        self._max_queue = max_queue
        self._clock = clock
        self._ids = itertools.count()
        self._channels: dict[int, Channel] = {}
        # Safe to put into from anywhere, even from a finalizer that interrupts another put.
        self._commands: SimpleQueue[_Command] = SimpleQueue()
        self._admission = threading.Lock()
        self._closed = False
        self._stats = self._core.stats()
        # It must not keep a process alive whose engine nobody closed.
        self._worker = threading.Thread(target=self._work, name="gossamer-engine", daemon=True)
        self._worker.start()

    @property
    def max_context(self) -> int:
        """See `gossamer.engine.api.Engine.max_context`."""
        return self._core.max_context

    @property
    def max_running(self) -> int:
        """Sequences that run at a time at most."""
        return self._core.max_running

    @property
    def is_alive(self) -> bool:
        """Whether it takes requests; false once it was closed or its worker has died."""
        return not self._closed

    @property
    def stats(self) -> EngineStats:
        """The engine after its latest step."""
        return self._stats

    @property
    def metrics(self) -> Metrics:
        """What it has done so far; to be read only."""
        return self._core.metrics

    def submit(
        self,
        token_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = NO_OPTIONS,
        *,
        embeddings: Sequence[Embeddings] = (),
    ) -> TokenStream:
        """See `gossamer.engine.api.Engine.submit`.

        Args:
            token_ids: The prompt.
            params: How to sample.
            options: How the request stands among others.
            embeddings: What some tokens have instead of their own, in their order.

        Raises:
            SubmitError: it can never be served.
            QueueFullError: it cannot be served now.
        """
        self._core.check(token_ids, params, embeddings)
        channel = Channel()
        with self._admission:
            request_id = next(self._ids)
            if self._closed:
                channel.put(TokenEvent(token_id=None, index=0, finish_reason="cancelled"))
                return TokenStream(channel, _nothing)
            limit = None if self._max_queue is None else self._core.max_running + self._max_queue
            if limit is not None and len(self._channels) >= limit:
                assert self._max_queue is not None
                raise QueueFullError(max_queue=self._max_queue)
            self._channels[request_id] = channel
            tokens = list(token_ids)
            given = tuple(embeddings)
            self._commands.put(_Submit(request_id, tokens, params, options, given, self._clock()))
        commands = self._commands
        return TokenStream(channel, lambda: commands.put(_Cancel(request_id)))

    async def close(self) -> None:
        """End all sequences with ``cancelled``, write the prefix cache to its spill, end the worker."""
        with self._admission:
            if not self._closed:
                self._closed = True
                self._commands.put(_Close())
        await asyncio.to_thread(self._worker.join)

    def _work(self) -> None:
        error = EngineError("the engine's worker thread has ended; start the engine again")
        try:
            while self._obey():
                self._deliver(self._step())
            self._shut_down()
        except BaseException as fault:
            LOG.critical("the engine's worker thread ends", exc_info=fault)
            error.__cause__ = fault
            raise
        finally:
            with self._admission:
                self._closed = True
            for channel in self._channels.values():
                channel.put(error)
            self._channels.clear()

    def _obey(self) -> bool:
        """Do what was asked since the last step, waiting where there is no other work; False to close."""
        while True:
            try:
                command = self._commands.get(block=not self._core.has_work)
            except Empty:
                return True
            match command:
                case _Close():
                    return False
                case _Cancel(request_id):
                    self._core.cancel(request_id)
                case _Submit():
                    self._accept(command)

    def _accept(self, command: _Submit) -> None:
        try:
            self._core.submit(
                command.token_ids,
                command.params,
                command.options,
                embeddings=command.embeddings,
                request_id=command.request_id,
                arrival_s=command.arrival_s,
            )
        except Exception as error:  # a logit mask's start is the caller's code
            failure = error if isinstance(error, EngineError) else EngineError(f"cannot start: {error!r}")
            self._deliver([StepEvent(request_id=command.request_id, error=failure)])

    def _step(self) -> list[StepEvent]:
        try:
            events = self._core.step()
        except Exception as error:
            LOG.exception("a step of the engine failed; all its requests end")
            failure = EngineError(f"the engine failed: {error!r}; please report this")
            failure.__cause__ = error
            self._core.fail_all(failure)
            events = self._core.take_events()
        self._stats = self._core.stats()
        return events

    def _deliver(self, events: Sequence[StepEvent]) -> None:
        for event in events:
            channel = self._channels[event.request_id]
            channel.cached_tokens = event.cached_tokens
            item = event.token if event.error is None else event.error
            assert item is not None
            if event.is_last:
                del self._channels[event.request_id]
            channel.put(item)

    def _shut_down(self) -> None:
        for request_id in list(self._channels):
            self._core.cancel(request_id)
        self._deliver(self._core.take_events())
        # Submitted after the worker last looked.
        for channel in self._channels.values():
            channel.put(TokenEvent(token_id=None, index=0, finish_reason="cancelled"))
        self._channels.clear()
        self._core.flush()
        self._stats = self._core.stats()


def _nothing() -> None:
    """A request that never began needs no end."""
