"""A conversation kept for evaluation: explicit, per tenant, apart from the logs.

Unlike the request log this holds content.  Messages stay exactly as they went over the wire,
unknown keys included: evaluation needs reasoning, ids and argument strings byte for byte.
"""

from __future__ import annotations

from typing import Any, Literal

from gossamer.records.envelope import Count, Digest, Record, Seconds, Text, Time, Value


class Exchange(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One request and its answer."""

    time: Time
    request_id: Text
    messages: tuple[dict[str, Any], ...]
    """New messages of this request (those before are in earlier exchanges), as sent."""
    answer: dict[str, Any] | None = None
    """The assistant message with reasoning_content, content and tool_calls; None after an error."""
    finish_reason: str | None = None
    error_code: str | None = None
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    ttft_s: Seconds | None = None
    duration_s: Seconds | None = None


class Feedback(Value, frozen=True, kw_only=True):
    """An explicit signal about an exchange."""

    time: Time
    request_id: Text
    kind: Text
    value: float | str | bool


class Capture(Record, frozen=True, kw_only=True, tag="gossamer.capture/1", omit_defaults=True):
    """One conversation; a line of a tenant's capture file."""

    conversation: Digest
    tenant: Digest
    model: Text
    redaction: Literal["none", "secrets", "content"]
    """What was taken out before writing."""
    exchanges: tuple[Exchange, ...]
    tools: tuple[dict[str, Any], ...] = ()
    """Tool declarations offered, as sent."""
    user: Digest | None = None
    task_id: str | None = None
    feedback: tuple[Feedback, ...] = ()
    assignment: dict[str, Any] | None = None
    """A `gossamer.assignment/1` object."""
