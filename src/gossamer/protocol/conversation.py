"""Rules that hold between the messages of one conversation, whatever format they came in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Literal

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.messages import Message, Origin

Passback = Literal["reject", "warn", "allow"]
"""What to do about an assistant message that has tool calls and no reasoning: refuse the request as the
family's own API does (an empty string will do where the model returned one), accept it and tell the client,
or accept it."""
PASSBACKS: tuple[Passback, ...] = ("reject", "warn", "allow")
MAX_NAMED = 10
"""Most ids, or messages, that one text lists."""


def origin_of(message: Message, index: int) -> Origin:
    """Where a message stood in its request; made up for one that came from none."""
    return message.origin or Origin(index=index, path=f"messages[{index}]")


def check_conversation(messages: Sequence[Message], passback: Passback) -> tuple[str, ...]:
    """Check that calls are answered and that reasoning comes back.

    Returns:
        What the client should be warned of.

    Raises:
        RequestError: naming the message at fault by its place in the client's own array.
    """
    _check_results(messages)
    return _check_passback(messages, passback)


def _check_results(messages: Sequence[Message]) -> None:
    """Each run of tool messages must answer exactly the calls of the assistant message before it.

    Ids are compared within that turn only: the family's ids begin anew in every turn and so repeat.
    """
    caller: Origin | None = None
    calls: frozenset[str | None] = frozenset()
    waiting: dict[str | None, None] = {}
    for index, message in enumerate(messages):
        origin = origin_of(message, index)
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                fault = (
                    "is answered twice" if message.tool_call_id in calls else "matches no call just before it"
                )
                raise invalid(f"{origin.path}.{origin.result_id}", f"{message.tool_call_id!r:.80} {fault}")
            del waiting[message.tool_call_id]
            continue
        _check_answered(caller, waiting)
        caller = origin
        waiting = dict.fromkeys(call.id for call in message.tool_calls)
        calls = frozenset(waiting)
    _check_answered(caller, waiting)


def _check_answered(caller: Origin | None, waiting: Collection[str | None]) -> None:
    if waiting:
        assert caller is not None
        unanswered = ", ".join(f"{call_id:.80}" for call_id in islice(waiting, MAX_NAMED))
        if len(waiting) > MAX_NAMED:
            unanswered += f" and {len(waiting) - MAX_NAMED} more"
        raise RequestError(
            "an assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{unanswered} (message at index {caller.index})",
            param=f"{caller.path}.{caller.calls}",
        )


def _check_passback(messages: Sequence[Message], passback: Passback) -> tuple[str, ...]:
    if passback == "allow":
        return ()
    lost = [
        origin_of(message, index)
        for index, message in enumerate(messages)
        if message.tool_calls and message.reasoning is None
    ]
    if not lost:
        return ()
    if passback == "warn":
        places = ", ".join(str(origin.index) for origin in lost[:MAX_NAMED])
        more = f" and {len(lost) - MAX_NAMED} more" if len(lost) > MAX_NAMED else ""
        return (f"reasoning_content is missing in assistant tool call message at index {places}{more}",)
    raise RequestError(
        "thinking is enabled but reasoning_content is missing in assistant tool call message "
        f"at index {lost[0].index}",
        param=f"{lost[0].path}.{lost[0].reasoning}",
        code="reasoning_content_missing",
    )
