"""The shape of an answer as places between tokens: what may come next, and what the rest takes at least.

Costs are tokens up to the end of the message.  The budget of an answer is kept by them: a token is taken only
if what it leads to still fits in what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gossamer.grammar.guide import Cursor, Guide, History
from gossamer.grammar.tracker import Place


@dataclass(frozen=True, kw_only=True)
class Step:
    """Fixed tokens on the way to somewhere.

    Attributes:
        ids: At least one token.
        cost: Of what comes after them.
        then: What comes after them; made when it is needed, for a message may have any number of calls.
    """

    ids: tuple[int, ...]
    cost: int
    then: Callable[[], Spot]

    @property
    def total(self) -> int:
        """Its own tokens and the rest."""
        return len(self.ids) + self.cost


@dataclass(frozen=True)
class Choice:
    """One of several steps, none of whose tokens are the beginning of another's; ``at`` tokens are behind."""

    steps: tuple[Step, ...]
    at: int = 0

    @property
    def cost(self) -> int:
        """See the module."""
        return min(step.total for step in self.steps) - self.at

    def allowed(self, left: int) -> set[int]:
        """Tokens that may come next if ``left`` are left."""
        return {step.ids[self.at] for step in self.steps if step.total - self.at <= left}

    def after(self, token_id: int) -> Spot:
        """Where a token leads."""
        steps = tuple(step for step in self.steps if step.ids[self.at] == token_id)
        if not steps:
            raise ValueError(f"token {token_id} fits none of {len(self.steps)} steps")
        if len(steps[0].ids) == self.at + 1:
            return steps[0].then()
        return Choice(steps, self.at + 1)


@dataclass(frozen=True)
class Free:
    """Any ordinary text, up to the closing token that ``exit`` begins with."""

    exit: Choice

    @property
    def cost(self) -> int:
        """See the module."""
        return self.exit.cost


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The way out of a text, made when it is taken."""

    cost: int
    choice: Callable[[], Choice]


@dataclass(frozen=True, kw_only=True)
class Written:
    """A text of a grammar, up to the closing token that its exits begin with.

    Attributes:
        place: How far it is.
        history: Its tokens so far.
        cursor: Of this one text.
        exit: The way out once the text is complete.
        instead: The way out if nothing was written at all; None if something must be.
    """

    place: Place
    cursor: Cursor
    exit: Exit
    history: History | None = None
    instead: Exit | None = None

    @property
    def cost(self) -> int:
        """See the module."""
        cost = self.place.cost + self.exit.cost
        return cost if self.instead is None or self.history is not None else min(cost, self.instead.cost)

    @property
    def exits(self) -> list[Exit]:
        """The ways out that are open here."""
        exits = [self.exit] if self.place.complete else []
        if self.instead is not None and self.history is None:
            exits.append(self.instead)
        return exits

    def after(self, token_id: int, text: bytes) -> Written | None:
        """Where an ordinary token leads; None if the grammar does not have it here."""
        place = self.place.step(text)
        if place is None:
            return None
        length = 1 if self.history is None else self.history.length + 1
        return Written(
            place=place,
            cursor=self.cursor,
            exit=self.exit,
            history=History(token_id, self.history, length),
            instead=self.instead,
        )


@dataclass(frozen=True)
class End:
    """The message is closed; only the end token may come."""

    @property
    def cost(self) -> int:
        """Nothing is left: whoever reads the message knows that it is over."""
        return 0


Spot = Choice | Free | Written | End


def writing(guide: Guide, exit: Exit, *, prefix: bytes = b"", instead: Exit | None = None) -> Written | None:
    """The beginning of a text.

    Args:
        guide: Its grammar.
        exit: See `Written`.
        prefix: What stands there already; None is returned if no text of the grammar begins with it.
        instead: See `Written`.
    """
    start: Written | None = Written(place=guide.start, cursor=guide.follow(), exit=exit, instead=instead)
    for byte in prefix:
        start = None if start is None else start.after(guide.byte_ids[byte], bytes([byte]))
    return start
