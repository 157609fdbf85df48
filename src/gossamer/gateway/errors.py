"""Errors as the client of a path expects them: OpenAI's shape, or Anthropic's."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from gossamer.gateway.exchange import note_error, request_id_of
from gossamer.protocol import anthropic
from gossamer.protocol.errors import ApiError


def is_anthropic(path: str) -> bool:
    """Whether a path is read by clients of the Anthropic format."""
    return path.startswith(("/v1/messages/", "/anthropic/")) or path == "/v1/messages"


def error_response(scope: Scope, error: ApiError) -> JSONResponse:
    """The answer that says it, noted in the exchange of the scope."""
    note_error(scope, error)
    return JSONResponse(error_body(scope, error), status_code=error.status)


def error_body(scope: Scope, error: ApiError) -> dict[str, Any]:
    """The JSON that says it."""
    if not is_anthropic(scope["path"]):
        return error.body()
    return anthropic.error_body(error, request_id_of(scope))
