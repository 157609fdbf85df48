"""Errors as the client of a path expects them: OpenAI's shape, or Anthropic's."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from gossamer.gateway.exchange import note_error, request_id_of
from gossamer.protocol.errors import ApiError

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


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
    fallback = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _ANTHROPIC_TYPES.get(error.status, fallback)
    said = {"type": kind, "message": error.message}
    return {"type": "error", "error": said, "request_id": request_id_of(scope)}
