"""Holds an answer to its shape while it is sampled, and ends it within its budget.

A large vocabulary's mask takes a while.  It is begun as soon as the token before it is known and computed
beside the model's next pass, so that requests that share the batch do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np

from gossamer.engine.api import EngineError, Logits
from gossamer.grammar.guide import GuideError, Mask
from gossamer.grammar.vocabulary import Vocabulary
from gossamer.server.envelope import Choice, End, Exit, Free, Spot, Written

MAX_DEPTH = 256
"""Rules inside of rules that a text may open, a few for each level of JSON: JSON readers have limits."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What the shape of an answer is written in.

    Attributes:
        text: Ordinary tokens; their ids begin at 0.
        close: The token that ends a text.
        end: The token behind a closed message.
    """

    text: Vocabulary
    close: int
    end: int


class State:
    """Where an answer is.  A value, but for what it remembers of its successors.

    Attributes:
        spot: Its place in the shape.
        left: Tokens that may still be generated.
    """

    __slots__ = ("_mask", "_next", "left", "spot")

    def __init__(self, spot: Spot, left: int):
        self.spot, self.left = spot, left
        self._next: tuple[int, State] | None = None
        self._mask: Future[Mask] | None = None

    def begin(self, executor: Executor) -> None:
        """Begin to compute the mask, if one is needed here."""
        if isinstance(self.spot, Written) and self.spot.cost < self.left and self._mask is None:
            self._mask = executor.submit(self.spot.cursor.mask, self.spot.history)

    def mask(self) -> Mask:
        """What the grammar allows here; of a `Written` only."""
        assert isinstance(self.spot, Written)
        return self.spot.cursor.mask(self.spot.history) if self._mask is None else self._mask.result()

    def after(self, token_id: int, tokens: Tokens) -> State:
        """Where a token leads.

        Raises:
            EngineError: it has no place here.
        """
        if self._next is None or self._next[0] != token_id:
            self._next = (token_id, State(_after(self.spot, token_id, tokens, self.left), self.left - 1))
        return self._next[1]


class StructuredMask:
    """A `gossamer.engine.api.LookaheadMask` that allows only answers of one shape.

    Args:
        spot: The shape, from its beginning.
        limit: Tokens that the answer may take; no less than the shape's cost.
        tokens: See `Tokens`.
        executor: Computes masks beside other work; None computes them when they are needed.
    """

    def __init__(self, spot: Spot, *, limit: int, tokens: Tokens, executor: Executor | None = None):
        if spot.cost > limit:
            raise ValueError(f"the shortest answer takes {spot.cost} tokens, the limit is {limit}")
        self._spot = spot
        self._limit = limit
        self._tokens = tokens
        self._executor = executor

    def start(self) -> State:
        """See `gossamer.engine.api.LogitMask.start`."""
        return self._begun(State(_fresh(self._spot), self._limit))

    def apply(self, state: State, logits: Logits) -> Logits:
        """See `gossamer.engine.api.LogitMask.apply`."""
        spot, size = state.spot, len(self._tokens.text)
        match spot:
            case Choice():
                return _only(logits, spot.allowed(state.left))
            case End():
                return _only(logits, (self._tokens.end,))
            case Free():
                if state.left <= spot.cost:
                    return _only(logits, (self._tokens.close,))
                masked = _only(logits, (self._tokens.close,))
                masked[:size] = logits[:size]
                return masked
            case Written():
                if state.left <= spot.cost:
                    return self.narrow(state, logits)
                closing = (self._tokens.close,) if self._may_close(spot, state.left) else ()
                masked = _only(logits, closing)
                try:
                    np.copyto(masked[:size], logits[:size], where=state.mask())
                except GuideError as error:
                    raise EngineError(str(error)) from None
                return masked

    def allows(self, state: State, token_id: int) -> bool:
        """See `gossamer.engine.api.LookaheadMask.allows`."""
        if not isinstance(state.spot, Written):
            return True
        after = state.after(token_id, self._tokens).spot
        if after.cost >= state.left:
            return False
        if not isinstance(after, Written) or after.place.depth <= MAX_DEPTH:
            return True
        # As deep as readers go: from here on only towards the end.
        return after.cost < state.spot.cost

    def narrow(self, state: State, logits: Logits) -> Logits:
        """See `gossamer.engine.api.LookaheadMask.narrow`: the way to the nearest end."""
        spot = state.spot
        assert isinstance(spot, Written)
        if self._may_close(spot, state.left):
            return _only(logits, (self._tokens.close,))
        return _only(logits, (spot.place.next_token(),))

    def advance(self, state: State, token_id: int) -> State:
        """See `gossamer.engine.api.LogitMask.advance`."""
        return self._begun(state.after(token_id, self._tokens))

    def _begun(self, state: State) -> State:
        if self._executor is not None:
            state.begin(self._executor)
        return state

    def _may_close(self, spot: Written, left: int) -> bool:
        return any(way.cost <= left for way in spot.exits)


def _fresh(spot: Spot) -> Spot:
    """The same place with a cursor of its own: several answers may begin here at a time."""
    if not isinstance(spot, Written):
        return spot
    return Written(
        place=spot.place,
        cursor=spot.cursor.copy(),
        exit=spot.exit,
        history=spot.history,
        instead=spot.instead,
    )


def _after(spot: Spot, token_id: int, tokens: Tokens, left: int) -> Spot:
    ordinary = token_id < len(tokens.text)
    match spot:
        case Choice():
            return spot.after(token_id)
        case Free():
            return spot if ordinary else spot.exit.after(token_id)
        case Written() if ordinary:
            after = spot.after(token_id, tokens.text.tokens[token_id])
            if after is None:
                raise EngineError(f"token {token_id} was sampled where the grammar does not have it")
            return after
        case Written():
            return _joined(way for way in spot.exits if way.cost <= left).after(token_id)
        case End():
            return spot


def _joined(exits: Iterable[Exit]) -> Choice:
    return Choice(tuple(step for way in exits for step in way.choice().steps))


def _only(logits: Logits, token_ids: Iterable[int]) -> Logits:
    masked = np.full_like(logits, -np.inf)
    kept = list(token_ids)
    masked[kept] = logits[kept]
    return masked
