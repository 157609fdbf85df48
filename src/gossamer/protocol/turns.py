"""Conversations as turns, and shortening them by whole ones."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.protocol.messages import Message


def split_turns(messages: Sequence[Message]) -> list[list[int]]:
    """Indices of the messages of each turn: a user's message and all that answers it.

    Messages before the first user's are a turn of their own, system messages belong to none: they stay.  A
    turn never ends between a call and its result, nor between reasoning and the call that it led to, for
    both begin and end within the answer.
    """
    turns: list[list[int]] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns


def without_oldest(
    messages: Sequence[Message], num_turns: int
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """The conversation without its oldest turns, and the indices of the messages that were dropped.

    Raises:
        ValueError: ``num_turns`` is negative, or would leave no turn.
    """
    turns = split_turns(messages)
    if not 0 <= num_turns < max(len(turns), 1):
        raise ValueError(f"cannot drop {num_turns} of {len(turns)} turns")
    dropped = [index for turn in turns[:num_turns] for index in turn]
    gone = set(dropped)
    return tuple(message for index, message in enumerate(messages) if index not in gone), tuple(dropped)
