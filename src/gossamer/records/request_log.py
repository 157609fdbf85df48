"""One line per request: counts, times and codes.

There is no field that could hold prompt, answer, reasoning, tool arguments or a key, and unknown
fields are refused, so such a line cannot be written or read by accident.  Ids, names and codes are
bounded in length and alphabet for the same reason.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gossamer.records.envelope import Count, Digest, Record, Seconds, Time

Identifier = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:/@+-]{1,128}$")]
"""A short id or name: no spaces, so no prose."""
WireFormat = Literal[
    "openai.chat", "openai.responses", "anthropic.messages", "anthropic.count_tokens", "gossamer.tokenize"
]


class RequestLog(Record, frozen=True, kw_only=True, tag="gossamer.request_log/1", omit_defaults=True):
    """What may be known about a request afterwards."""

    time: Time
    """When the request had arrived."""
    request_id: Identifier
    wire_format: WireFormat
    model: Identifier
    """As the client asked for it."""
    is_stream: bool
    status: Annotated[int, msgspec.Meta(ge=100, le=599)]
    duration_s: Seconds
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    ttft_s: Seconds | None = None
    """To the first token of any kind, reasoning included."""
    queue_s: Seconds | None = None
    finish_reason: Identifier | None = None
    error_code: Identifier | None = None
    tool_names: tuple[Identifier, ...] = ()
    """Tools the answer called, in order; never their arguments."""
    num_tools_offered: Count = 0
    num_messages: Count | None = None
    num_images: Count = 0
    request_bytes: Count | None = None
    response_bytes: Count | None = None
    upstream: Identifier | None = None
    arm: Identifier | None = None
    num_retries: Count = 0
    """Tries of this very request before this one, as its client says."""
    conversation: Digest | None = None
    tenant: Digest | None = None
    cost_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
