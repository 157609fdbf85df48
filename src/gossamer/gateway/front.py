"""The endpoints: read a request in its format, find who answers, answer in the same format."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from gossamer.gateway.answer import Answer
from gossamer.gateway.exchange import request_id_of
from gossamer.gateway.truncate import fit
from gossamer.gateway.upstream import Upstream
from gossamer.protocol.anthropic import MessagesWire
from gossamer.protocol.anthropic_request import parse_messages_request
from gossamer.protocol.errors import ApiError, RequestError, unknown_model
from gossamer.protocol.openai import ChatWire
from gossamer.protocol.request import Passback, decode_json, parse
from gossamer.protocol.responses import ResponsesWire
from gossamer.protocol.responses_request import parse_responses_request
from gossamer.protocol.wire import Envelope


@dataclass(frozen=True, kw_only=True)
class Front:
    """What the routes share.

    ``draining`` says that no more requests should be sent here; setting ``closing`` ends every answer in
    flight with an error event.
    """

    upstreams: Mapping[str, Upstream]
    max_body_bytes: int
    passback: Passback
    strict_kimi: bool
    both_names: bool
    created: int
    ready: Callable[[], bool]
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    def model_body(self, name: str) -> dict[str, Any]:
        """One entry of the model list, for clients of either family."""
        made = datetime.fromtimestamp(self.created, UTC)
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "gossamer",
            "type": "model",
            "display_name": name,
            "created_at": made.isoformat().replace("+00:00", "Z"),
            "max_model_len": self.upstreams[name].max_context,
        }

    async def chat_completions(self, request: HttpRequest) -> Response | Answer:
        """OpenAI's chat format."""
        parsed = parse(await self._json(request), passback=self.passback, strict_kimi=self.strict_kimi)
        upstream = self._upstream(parsed.model)
        request_id = request_id_of(request.scope)
        wire = ChatWire(
            _envelope("chatcmpl-", request_id, parsed.model),
            include_usage=parsed.include_usage,
            both_names=self.both_names,
        )
        return Answer(parsed, upstream, wire, request_id=request_id, closing=self.closing)

    async def messages(self, request: HttpRequest) -> Response | Answer:
        """Anthropic's Messages format."""
        tree = await self._json(request)
        parsed = parse_messages_request(tree, passback=self.passback, strict_kimi=self.strict_kimi)
        upstream = self._upstream(parsed.request.model)
        request_id = request_id_of(request.scope)
        envelope = _envelope("msg_", request_id, parsed.request.model)
        wire = MessagesWire(envelope, request_id=request_id, eager=parsed.eager)
        return Answer(parsed.request, upstream, wire, request_id=request_id, closing=self.closing)

    async def responses(self, request: HttpRequest) -> Response | Answer:
        """OpenAI's Responses format."""
        tree = await self._json(request)
        parsed = parse_responses_request(tree, passback=self.passback, strict_kimi=self.strict_kimi)
        asked, echo = parsed.request, dict(parsed.echo)
        upstream = self._upstream(asked.model)
        if parsed.truncate:
            asked, dropped = await fit(asked, upstream)
            # Our own field: the format has none that says so.
            echo["truncated_input"] = list(dropped)
        request_id = request_id_of(request.scope)
        wire = ResponsesWire(_envelope("resp_", request_id, asked.model), echo=echo, custom=parsed.custom)
        return Answer(asked, upstream, wire, request_id=request_id, closing=self.closing)

    async def count_tokens(self, request: HttpRequest) -> Response:
        """What a Messages request would take as a prompt."""
        parsed = parse_messages_request(
            await self._json(request), passback=self.passback, strict_kimi=self.strict_kimi, count_only=True
        )
        tokens = await self._upstream(parsed.request.model).tokenize(parsed.request)
        return JSONResponse({"input_tokens": len(tokens)})

    async def tokenize(self, request: HttpRequest) -> Response:
        """The prompt of a chat request as token ids."""
        parsed = parse(await self._json(request), passback=self.passback, strict_kimi=self.strict_kimi)
        upstream = self._upstream(parsed.model)
        tokens = list(await upstream.tokenize(parsed))
        return JSONResponse({"count": len(tokens), "max_model_len": upstream.max_context, "tokens": tokens})

    async def models(self, request: HttpRequest) -> Response:
        """The models served here."""
        names = list(self.upstreams)
        page = {"has_more": False, "first_id": names[0], "last_id": names[-1]} if names else {}
        data = [self.model_body(name) for name in names]
        return JSONResponse({"object": "list", "data": data, **page})

    async def model(self, request: HttpRequest) -> Response:
        """One model by id."""
        name = request.path_params["name"]
        self._upstream(name)
        return JSONResponse(self.model_body(name))

    async def healthz(self, request: HttpRequest) -> Response:
        """Alive; the process id tells a starter that it reached the server it started."""
        return JSONResponse({"status": "ok", "pid": os.getpid(), "models": list(self.upstreams)})

    async def readyz(self, request: HttpRequest) -> Response:
        """Whether requests should be sent here: 503 while it stops, or when its engine has ended."""
        if self.draining.is_set() or not self.ready():
            raise ApiError(
                "not ready: the server is stopping or its engine has ended", status=503, code="not_ready"
            )
        return JSONResponse({"status": "ready"})

    def _upstream(self, name: str) -> Upstream:
        upstream = self.upstreams.get(name)
        if upstream is None:
            raise unknown_model(name, sorted(self.upstreams))
        return upstream

    async def _json(self, request: HttpRequest) -> Any:
        _require_json(request)
        return decode_json(await self._read(request))

    async def _read(self, request: HttpRequest) -> bytes:
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self.max_body_bytes:
            raise self._too_large()
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > self.max_body_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> RequestError:
        return RequestError(
            f"the body is larger than {self.max_body_bytes} bytes", status=413, code="request_too_large"
        )


def _envelope(prefix: str, request_id: str, model: str) -> Envelope:
    return Envelope(id=f"{prefix}{request_id}", model=model, created=int(time.time()))


def _require_json(request: HttpRequest) -> None:
    # A web page can post any other type to a local port without asking the browser's user.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(
            f"content-type must be application/json, got {kind or 'none'!r}",
            status=415,
            code="unsupported_media_type",
        )
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise RequestError(
            f"content-encoding {coding!r} is not accepted; send the body plain",
            status=415,
            code="unsupported_media_type",
        )
