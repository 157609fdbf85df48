"""The OpenAI error shape: ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

from typing import Any

from gossamer.errors import GossamerError

MAX_MESSAGE_CHARS = 1000
MAX_PARAM_CHARS = 200


class ApiError(GossamerError):
    """Anything that a client is told over the wire instead of an answer.

    Attributes:
        status: HTTP status that goes with it before a stream has begun.
        type: OpenAI's error family, e.g. ``invalid_request_error``.
        param: Path of the offending field, e.g. ``messages[2].tool_calls[0].id``.
        code: Machine-readable reason, stable across wordings.
        retry_after_s: Whole seconds after which the same request may be served; None where that is unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 500,
        type: str = "server_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ):
        # Messages quote what a client sent, which may be megabytes: an answer must not be.
        self.message = _bounded(message, MAX_MESSAGE_CHARS)
        super().__init__(self.message)
        self.status = status
        self.type = type
        self.param = None if param is None else _bounded(param, MAX_PARAM_CHARS)
        self.code = code
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The JSON body of the error response, and of an error event in a stream."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def _bounded(text: str, limit: int) -> str:
    """The text, its middle left out where it is too long: the problem leads it, the fix ends it."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3 - 5
    return f"{text[:head]} ... {text[-tail:]}"


class RequestError(ApiError, ValueError):
    """A request that cannot be served as it is written (HTTP 4xx)."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = "invalid_value",
        status: int = 400,
        type: str = "invalid_request_error",
    ):
        super().__init__(message, status=status, type=type, param=param, code=code)


def unknown_model(name: str, served: list[str]) -> RequestError:
    """404 that lists what is served."""
    return RequestError(
        f"The model {name!r} is not served here; served: {', '.join(served)}",
        status=404,
        param="model",
        code="model_not_found",
    )


def context_exceeded(max_context: int, num_prompt: int, max_tokens: int | None) -> RequestError:
    """400 in the words of the published API, with both numbers, what they are made of, and what to do."""
    wanted = 1 if max_tokens is None else max_tokens
    left = max_context - num_prompt
    fix = f"lower the answer's limit to {left}" if left > 0 else "shorten the conversation"
    return RequestError(
        f"Invalid request: Your request exceeded model token limit: {max_context} "
        f"(requested: {num_prompt + wanted} = {num_prompt} prompt + {wanted} answer); {fix}",
        param="messages",
        code="context_length_exceeded",
    )


def invalid(path: str, problem: str, *, code: str = "invalid_value") -> RequestError:
    """A `RequestError` about one field, which it names in its text and as ``param``."""
    return RequestError(f"{path} {problem}", param=path, code=code)
