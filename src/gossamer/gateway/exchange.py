"""One HTTP request from its arrival to its end: what may be known of it afterwards."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from starlette.types import Scope

from gossamer.gateway.upstream import Meter
from gossamer.protocol.errors import ApiError
from gossamer.records.request_log import RequestLog, WireFormat

OTHER = "other"
"""The route of every path that is none of ours: what a client makes up is not written anywhere."""
WIRE_FORMATS: Mapping[str, WireFormat] = {
    "/v1/chat/completions": "openai.chat",
    "/v1/responses": "openai.responses",
    "/v1/messages": "anthropic.messages",
    "/v1/messages/count_tokens": "anthropic.count_tokens",
    "/anthropic/v1/messages": "anthropic.messages",
    "/anthropic/v1/messages/count_tokens": "anthropic.count_tokens",
    "/v1/tokenize": "gossamer.tokenize",
}
CLIENT_GONE = 499
"""The status written for a client that left before it had one; it is sent to nobody."""
_STATE = "gossamer.exchange"
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.:/@+-]{1,128}")


@dataclass(kw_only=True)
class Exchange:
    """See the module; filled in as the request is read and answered.

    Attributes:
        route: The path as a pattern, `OTHER` for unknown ones.
        method: GET, POST and the like; `OTHER` for unknown ones.
        arrived_s: Clock at arrival.
        time: The same for people, RFC 3339.
        meter: What the model has read and written for it.
        status: Sent to the client; None before.
        error_code: Why there is no whole answer.
        retry_after_s: Sent along with the status.
        client_retries: How often the client says that it had tried before.
    """

    route: str
    method: str
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    arrived_s: float = field(default_factory=time.perf_counter)
    time: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z")
    meter: Meter = field(default_factory=Meter)
    tenant: str | None = None
    model: str = "unknown"
    is_stream: bool = False
    num_messages: int | None = None
    num_tools_offered: int = 0
    num_images: int = 0
    tool_names: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    first_event_s: float | None = None
    status: int | None = None
    error_code: str | None = None
    retry_after_s: int | None = None
    client_retries: int = 0
    request_bytes: int = 0
    response_bytes: int = 0

    def duration_s(self) -> float:
        """Seconds since its arrival."""
        return time.perf_counter() - self.arrived_s

    def record(self) -> RequestLog | None:
        """Its line of the log; None for a request that asks no model anything."""
        wire = WIRE_FORMATS.get(self.route)
        if wire is None or self.method != "POST":
            return None
        meter, first = self.meter, self.first_event_s
        return RequestLog(
            time=self.time,
            request_id=self.request_id,
            wire_format=wire,
            model=identifier(self.model),
            is_stream=self.is_stream,
            status=self.status or CLIENT_GONE,
            duration_s=round(self.duration_s(), 6),
            prompt_tokens=meter.prompt_tokens,
            cached_tokens=meter.cached_tokens,
            completion_tokens=None if meter.prompt_tokens is None else meter.completion_tokens,
            reasoning_tokens=meter.reasoning_tokens,
            ttft_s=None if first is None else round(first - self.arrived_s, 6),
            finish_reason=self.finish_reason,
            error_code=None if self.error_code is None else identifier(self.error_code),
            tool_names=tuple(identifier(name) for name in self.tool_names),
            num_tools_offered=self.num_tools_offered,
            num_messages=self.num_messages,
            num_images=self.num_images,
            request_bytes=self.request_bytes,
            response_bytes=self.response_bytes,
            num_retries=self.client_retries,
            tenant=self.tenant,
        )


def attach(scope: Scope, exchange: Exchange) -> None:
    """Let whatever answers this scope find its exchange."""
    scope.setdefault("state", {})[_STATE] = exchange


def exchange_of(scope: Scope) -> Exchange | None:
    """The exchange of a scope, None where no `gossamer.gateway.service.Service` stands in front."""
    return scope.get("state", {}).get(_STATE)


def request_id_of(scope: Scope) -> str:
    """The id that the client and the log are told."""
    exchange = exchange_of(scope)
    return uuid.uuid4().hex if exchange is None else exchange.request_id


def note_error(scope: Scope, error: ApiError) -> None:
    """Say why a request got no whole answer."""
    exchange = exchange_of(scope)
    if exchange is not None:
        exchange.error_code = error.code or error.type
        exchange.retry_after_s = error.retry_after_s


def note_outcome(scope: Scope, code: str) -> None:
    """The same for an end that no client is told of, such as its own leaving."""
    exchange = exchange_of(scope)
    if exchange is not None and exchange.error_code is None:
        exchange.error_code = code


def identifier(text: str) -> str:
    """The text if it can be a short name, else what stands for one that cannot."""
    return text if _IDENTIFIER.fullmatch(text) else "unprintable"
