"""The HTTP front: the routes; `gossamer.gateway.service` stands before all of them.

Torch-free, and without a thought about tokens: `protocol` reads and writes, an `Upstream` answers.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gossamer.gateway.answer import LOG, Answer
from gossamer.gateway.errors import error_response
from gossamer.gateway.exchange import request_id_of
from gossamer.gateway.front import Front
from gossamer.gateway.logs import place_of
from gossamer.gateway.service import Service, ServiceSettings
from gossamer.gateway.upstream import Upstream
from gossamer.protocol.errors import ApiError, RequestError
from gossamer.protocol.request import Passback

MAX_BODY_BYTES = 64 * 1024 * 1024
NO_SETTINGS = ServiceSettings()
ANTHROPIC_ROOTS = ("/v1", "/anthropic/v1")
"""Clients of that format add /v1/messages to their base URL, which may end in /anthropic."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A text that is written anew for each ``GET``, in a thread of its own: it may take a while."""

    content_type: str
    write: Callable[[], str]

    async def answer(self, request: HttpRequest) -> Response:
        """Write it."""
        text = await run_in_threadpool(self.write)
        return Response(text.encode(), headers={"content-type": self.content_type})


class _Guarded:
    """An endpoint whose every failure is an answer in the OpenAI shape, and none is a traceback."""

    def __init__(self, endpoint: Callable[[HttpRequest], Awaitable[Response | Answer]]):
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response: Response | Answer = await self._endpoint(HttpRequest(scope, receive))
        except ClientDisconnect:
            return
        except ApiError as error:
            response = error_response(scope, error)
        except Exception as error:
            LOG.error("request %s failed: %s", request_id_of(scope), place_of(error))
            response = error_response(scope, internal_error(scope))
        await response(scope, receive, send)


def _http_error(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    allowed = (error.headers or {}).get("Allow")
    if error.status_code == 405:
        text, code = f"{request.method} is not allowed here; use {allowed}", "method_not_allowed"
    else:
        text, code = f"no such path: {request.url.path}", "not_found"
    response = error_response(request.scope, RequestError(text, code=code, status=error.status_code))
    response.headers.update(error.headers or {})
    return response


def internal_error(scope: Scope) -> ApiError:
    """500 without a word about why: that may quote a conversation."""
    return ApiError(f"internal error; request id {request_id_of(scope)}", code="internal_error")


def create_app(
    upstreams: Mapping[str, Upstream],
    *,
    max_body_bytes: int = MAX_BODY_BYTES,
    passback: Passback = "reject",
    strict_kimi: bool = False,
    both_names: bool = False,
    pages: Mapping[str, Page] | None = None,
    on_close: Sequence[Callable[[], Awaitable[None]]] = (),
    settings: ServiceSettings = NO_SETTINGS,
    ready: Callable[[], bool] = lambda: True,
) -> Starlette:
    """The ASGI application.

    Args:
        upstreams: Who answers for which model id.
        max_body_bytes: Larger bodies are refused with 413.
        passback: See `gossamer.protocol.request.parse`.
        strict_kimi: The same.
        both_names: See `gossamer.protocol.openai.ChatWire`.
        pages: More paths to ``GET``, such as ``/metrics``.
        on_close: Awaited once when the server has stopped.
        settings: What is asked of clients.
        ready: Whether requests can be answered at all; asked by ``GET /readyz``.

    Returns:
        The app.  In its ``state``: ``draining``, the event that says that it stops; ``closing``, the one that
        ends the answers in flight; ``counts``, the `gossamer.gateway.service.FrontCounts`.
    """
    routes: list[Route] = []
    service = Service(settings, lambda path: _route_of(routes, path))
    front = Front(
        upstreams=service.metered(upstreams),
        max_body_bytes=max_body_bytes,
        passback=passback,
        strict_kimi=strict_kimi,
        both_names=both_names,
        created=int(time.time()),
        ready=ready,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        yield
        for close in on_close:
            await close()

    routes += _routes(front, pages or {})
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _http_error},
        middleware=_middleware(service, settings),
        lifespan=lifespan,
    )
    app.state.closing, app.state.draining = front.closing, front.draining
    app.state.counts = service.counts
    return app


def _routes(front: Front, pages: Mapping[str, Page]) -> list[Route]:
    return [
        _route("/v1/chat/completions", front.chat_completions, "POST"),
        *(_route(f"{root}/messages", front.messages, "POST") for root in ANTHROPIC_ROOTS),
        *(_route(f"{root}/messages/count_tokens", front.count_tokens, "POST") for root in ANTHROPIC_ROOTS),
        _route("/v1/responses", front.responses, "POST"),
        _route("/v1/tokenize", front.tokenize, "POST"),
        *(_route(f"{root}/models", front.models, "GET") for root in ANTHROPIC_ROOTS),
        *(_route(f"{root}/models/{{name:path}}", front.model, "GET") for root in ANTHROPIC_ROOTS),
        _route("/healthz", front.healthz, "GET"),
        _route("/readyz", front.readyz, "GET"),
        *(_route(path, page.answer, "GET") for path, page in pages.items()),
    ]


def _middleware(service: Service, settings: ServiceSettings) -> list[Middleware]:
    """A browser asks what it may send before it sends a key, so that question comes first."""
    if not settings.allow_origins:
        return [Middleware(service.middleware)]
    cross_origin = Middleware(
        CORSMiddleware,
        allow_origins=settings.allow_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after"],
    )
    return [cross_origin, Middleware(service.middleware)]


def _route_of(routes: Sequence[Route], path: str) -> str | None:
    return next((route.path for route in routes if route.path_regex.match(path)), None)


def _route(path: str, endpoint: Callable[[HttpRequest], Awaitable[Response | Answer]], method: str) -> Route:
    return Route(path, _Guarded(endpoint), methods=[method])
