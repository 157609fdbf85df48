"""Conversations that are shortened to fit, by whole turns from the oldest on."""

from __future__ import annotations

from dataclasses import replace

from gossamer.gateway.upstream import Upstream
from gossamer.protocol.conversation import origin_of
from gossamer.protocol.request import Request
from gossamer.protocol.turns import split_turns, without_oldest


async def fit(request: Request, upstream: Upstream) -> tuple[Request, tuple[str, ...]]:
    """The request with as few turns dropped as let prompt and answer fit.

    Returns:
        It, with a warning where turns are gone, and the paths of the messages that are.  One that does not
        fit by its last turn alone comes back as it was: the upstream refuses it with both numbers.
    """
    most = len(split_turns(request.messages)) - 1
    if most < 1 or await _fits(request, upstream):
        return request, ()
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if await _fits(_without(request, middle), upstream):
            high = middle
        else:
            low = middle + 1
    shorter = _without(request, low)
    if not await _fits(shorter, upstream):
        return request, ()
    _, indices = without_oldest(request.messages, low)
    paths = tuple(origin_of(request.messages[index], index).path for index in indices)
    warning = (
        f"truncation dropped the {low} oldest turns: {len(paths)} messages from {paths[0]} to {paths[-1]}"
    )
    return replace(shorter, warnings=(*request.warnings, warning)), paths


def _without(request: Request, num_turns: int) -> Request:
    messages, _ = without_oldest(request.messages, num_turns)
    return replace(request, messages=messages)


async def _fits(request: Request, upstream: Upstream) -> bool:
    return len(await upstream.tokenize(request)) + (request.max_tokens or 1) <= upstream.max_context
