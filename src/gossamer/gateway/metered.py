"""An upstream that is watched: who asked, what was read and written, when it began to answer."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from gossamer.gateway.exchange import Exchange
from gossamer.gateway.upstream import Context, Upstream
from gossamer.protocol.events import Event, Finish, ToolCallBegin, Usage
from gossamer.protocol.request import Request


@dataclass(frozen=True, kw_only=True)
class MeteredUpstream:
    """Passes everything on as it is and keeps the books of the request's `Exchange`.

    Attributes:
        inner: Who answers.
        find: The exchange of a request id; None for a request that came some other way.
    """

    inner: Upstream
    find: Callable[[str], Exchange | None]

    @property
    def max_context(self) -> int:
        """See `gossamer.gateway.upstream.Upstream.max_context`."""
        return self.inner.max_context

    async def tokenize(self, request: Request) -> Sequence[int]:
        """See `gossamer.gateway.upstream.Upstream.tokenize`."""
        return await self.inner.tokenize(request)

    def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        """See `gossamer.gateway.upstream.Upstream.send`."""
        exchange = self.find(context.request_id)
        if exchange is None:
            return self.inner.send(request, context)
        _note_request(exchange, request)
        watched = replace(context, meter=exchange.meter, tenant=exchange.tenant or "")
        return _watch(self.inner.send(request, watched), exchange)


async def _watch(events: AsyncIterator[Event], exchange: Exchange) -> AsyncGenerator[Event]:
    try:
        async for event in events:
            if exchange.first_event_s is None:
                exchange.first_event_s = time.perf_counter()
            _note_event(exchange, event)
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _note_request(exchange: Exchange, request: Request) -> None:
    exchange.model = request.model
    exchange.is_stream = request.stream
    exchange.num_messages = len(request.messages)
    exchange.num_tools_offered = len(request.tools) + sum(len(m.tools) for m in request.messages)
    exchange.num_images = sum(
        part.kind == "image_url"
        for message in request.messages
        if message.content is not None and not isinstance(message.content, str)
        for part in message.content
    )


def _note_event(exchange: Exchange, event: Event) -> None:
    if isinstance(event, ToolCallBegin):
        exchange.tool_names.append(event.name)
    elif isinstance(event, Finish):
        exchange.finish_reason = event.reason
    elif isinstance(event, Usage):
        meter = exchange.meter
        meter.prompt_tokens, meter.cached_tokens = event.prompt_tokens, event.cached_tokens
        meter.completion_tokens, meter.reasoning_tokens = event.completion_tokens, event.reasoning_tokens
