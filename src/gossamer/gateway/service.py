"""What stands before every route: who may ask, how much, what is counted, and one line of log for each.

It reads no body and knows no wire format; `gossamer.gateway.exchange` holds what the routes tell it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.gateway.errors import error_response, is_anthropic
from gossamer.gateway.exchange import CLIENT_GONE, OTHER, Exchange, attach
from gossamer.gateway.keys import KeyRing, presented_key, unauthenticated
from gossamer.gateway.limits import Lease, Limiter
from gossamer.gateway.metered import MeteredUpstream
from gossamer.gateway.upstream import Upstream
from gossamer.protocol.errors import ApiError, RequestError

LOG = logging.getLogger("gossamer.requests")
MAX_HEADER_BYTES = 64 * 1024
MAX_HEADERS = 200
BODY_IDLE_S = 30.0
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a key: whoever watches a process has none."""
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})
_MAX_RETRIES = 1000


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """What a server asks of its clients.

    Attributes:
        keys: Only who brings one of these is served; None serves everybody.
        allowed_hosts: Names by which the server may be addressed, without port; None allows any.  A web page
            whose name was pointed at this machine would otherwise reach a server that asks for no key.
        allow_origins: Web pages that may read the answers; none unless named.
        max_header_bytes: All of a request's header fields together.
        body_idle_s: How long a client may let the server wait for more of the body that it announced.
    """

    keys: KeyRing | None = None
    allowed_hosts: frozenset[str] | None = None
    allow_origins: tuple[str, ...] = ()
    max_header_bytes: int = MAX_HEADER_BYTES
    body_idle_s: float = BODY_IDLE_S


@dataclass(kw_only=True)
class FrontCounts:
    """What the front has done since its start; written by one event loop, readable from any thread.

    Attributes:
        responses: By route, method and status.
        errors: By error code.
        client_retries: Requests whose client said that it had tried before.
        in_flight: Requests being answered now.
    """

    responses: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    client_retries: int = 0
    in_flight: int = 0


class Service:
    """See the module.

    Args:
        settings: See `ServiceSettings`.
        route_of: The pattern of the route that a path belongs to, None for a path that is none of ours.
    """

    def __init__(self, settings: ServiceSettings, route_of: Callable[[str], str | None]):
        self._settings = settings
        self._route_of = route_of
        self._limiter = Limiter()
        self._exchanges: dict[str, Exchange] = {}
        self.counts = FrontCounts()

    def metered(self, upstreams: Mapping[str, Upstream]) -> dict[str, Upstream]:
        """The same upstreams, watched."""
        return {
            name: MeteredUpstream(inner=upstream, find=self._exchanges.get)
            for name, upstream in upstreams.items()
        }

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """The app with the service before it."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await self._handle(app, scope, receive, send)
            elif scope["type"] == "lifespan":
                await app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1003})

        return guarded

    async def _handle(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        exchange = Exchange(route=self._route_of(scope["path"]) or OTHER, method=method)
        attach(scope, exchange)
        self._exchanges[exchange.request_id] = exchange
        self.counts.in_flight += 1
        wire = _Wire(exchange, scope, receive, send, body_idle_s=self._settings.body_idle_s)
        try:
            try:
                wire.lease = self._admit(scope, exchange)
            except ApiError as error:
                await error_response(scope, error)(scope, wire.receive, wire.send)
                return
            await app(scope, wire.receive, wire.send)
        finally:
            del self._exchanges[exchange.request_id]
            self.counts.in_flight -= 1
            wire.end()
            self._note(exchange)

    def _admit(self, scope: Scope, exchange: Exchange) -> Lease | None:
        headers = Headers(scope=scope)
        self._check_headers(scope, headers)
        retries = headers.get("x-stainless-retry-count", "")
        if retries.isascii() and retries.isdecimal() and len(retries) < 5:
            exchange.client_retries = min(int(retries), _MAX_RETRIES)
        keys = self._settings.keys
        if keys is None or scope["path"] in OPEN_PATHS:
            return None
        presented = presented_key(headers.getlist)
        if presented is None:
            raise unauthenticated(
                "this server wants an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            )
        key = keys.find(presented)
        if key is None:
            raise unauthenticated("the API key is not known here; check it, or ask for a new one")
        exchange.tenant = key.id
        # Reading what is served or measured takes nothing that a limit is for.
        return self._limiter.enter(key) if scope["method"] == "POST" else None

    def _check_headers(self, scope: Scope, headers: Headers) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._settings.max_header_bytes or len(scope["headers"]) > MAX_HEADERS:
            raise RequestError(
                f"the header fields take {size} bytes in {len(scope['headers'])} lines; at most "
                f"{self._settings.max_header_bytes} in {MAX_HEADERS} are read",
                status=431,
                code="headers_too_large",
            )
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise RequestError(f"exactly one Host header is needed, got {len(hosts)}", code="invalid_host")
        allowed = self._settings.allowed_hosts
        if allowed is not None and host_name(hosts[0]) not in allowed:
            raise RequestError(
                "this server is not served under that Host; start it with --api-keys or with --host set to "
                "the name that clients use",
                status=421,
                code="host_not_allowed",
            )

    def _note(self, exchange: Exchange) -> None:
        status = exchange.status or CLIENT_GONE
        self.counts.responses[exchange.route, exchange.method, status] += 1
        if exchange.error_code is not None:
            self.counts.errors[exchange.error_code] += 1
        if exchange.client_retries:
            self.counts.client_retries += 1
        record = exchange.record()
        if record is not None:
            LOG.info("request", extra={"record": record})


class _Wire:
    """The two directions of one exchange, counted, with the headers that every response has."""

    def __init__(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send, *, body_idle_s: float):
        self._exchange = exchange
        self._id_names = [b"x-request-id", *([b"request-id"] if is_anthropic(scope["path"]) else [])]
        self.lease: Lease | None = None
        self._receive = receive
        self._send = send
        self._body_idle_s = body_idle_s
        self._body_ended = False

    async def receive(self) -> Message:
        """See ASGI.

        Raises:
            RequestError: more of the body was announced and does not come.
        """
        if self._body_ended:
            return await self._receive()
        try:
            async with asyncio.timeout(self._body_idle_s):
                message = await self._receive()
        except TimeoutError:
            raise RequestError(
                f"no more of the body came for {self._body_idle_s:g} s; send it again",
                status=408,
                code="body_timeout",
            ) from None
        self._body_ended = not message.get("more_body", False)
        self._exchange.request_bytes += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        """See ASGI."""
        exchange = self._exchange
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            own = [(name, exchange.request_id.encode()) for name in self._id_names]
            own.append((b"x-content-type-options", b"nosniff"))
            if exchange.retry_after_s is not None:
                own.append((b"retry-after", str(exchange.retry_after_s).encode()))
            named = {name for name, _ in own}
            others = [(name, value) for name, value in message.get("headers", ()) if name not in named]
            message = {**message, "headers": [*others, *own]}
        else:
            exchange.response_bytes += len(message.get("body", b""))
            if not message.get("more_body", False):
                # A client may ask again as soon as it has the last byte, so the books are closed before.
                self.end()
        await self._send(message)

    def end(self) -> None:
        """Close the books of its key; once."""
        if self.lease is not None:
            self.lease.end(self._exchange.meter.total)
            self.lease = None


def host_name(header: str) -> str:
    """The name or address in a Host header, lower-case, without port and brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
