"""Follows a text through a grammar, and knows at every byte how few tokens end it.

All readings of an ambiguous text are followed at once; readings that came to the same rule at the same byte
share what is left of it, so that their number does not grow with nesting.
"""

from __future__ import annotations

from gossamer.grammar.automaton import NEVER
from gossamer.grammar.rules import Grammar


class Frame:
    """A rule that was entered at some byte: what comes after it, by sequence, place and outer frame."""

    __slots__ = ("after", "cost", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.after: dict[tuple[int, int, int], tuple[int, int, Frame]] = {}
        self.cost = NEVER


Reading = tuple[int, int, int, int, Frame]
"""A terminal and its state, then the sequence, the place after the terminal, and the frame."""


class Place:
    """All readings of one text so far.  A value: nothing changes it.

    Attributes:
        complete: Whether the text may end here.
        cost: Tokens that suffice to end it, 0 where it is complete.
        depth: Rules inside of rules here, of the deepest reading.
    """

    __slots__ = ("_grammar", "_readings", "complete", "cost", "depth")

    def __init__(self, grammar: Grammar, readings: tuple[Reading, ...], complete: bool):
        self._grammar = grammar
        self._readings = readings
        self.complete = complete
        self.cost = 0 if complete else min(map(self._cost, readings), default=NEVER)
        self.depth = max((frame.depth for *_, frame in readings), default=0)

    def step(self, text: bytes) -> Place | None:
        """The place after more bytes; None if no text of the grammar goes on with them."""
        grammar, terminals = self._grammar, self._grammar.terminals
        readings = self._readings
        complete = self.complete
        for byte in text:
            reach = _Reach(grammar)
            for terminal, state, sequence, at, frame in readings:
                after = terminals[terminal].step(state, byte)
                if after < 0:
                    continue
                if terminals[terminal].goes_on(after):
                    reach.keep(terminal, after, sequence, at, frame)
                if terminals[terminal].ends(after):
                    reach.follow(sequence, at, frame)
            readings = reach.finish()
            complete = reach.complete
            if not readings and not complete:
                return None
        return Place(grammar, readings, complete)

    def next_token(self) -> int:
        """A token that brings the end one token nearer; only where the cost is above 0."""
        best = min(self._readings, key=lambda r: (self._cost(r), r[:4]))
        return self._grammar.terminals[best[0]].next_token(best[1])

    def _cost(self, reading: Reading) -> int:
        terminal, state, sequence, at, frame = reading
        cost = self._grammar.terminals[terminal].cost(state)
        if cost == 0:
            # It may end: its continuation is a reading of its own, and has a token to go on with.
            return NEVER
        return cost + self._grammar.rests[sequence][at] + frame.cost


def start(grammar: Grammar) -> Place:
    """The place before the first byte."""
    bottom = Frame()
    bottom.cost = 0
    reach = _Reach(grammar)
    reach.begin(bottom)
    return Place(grammar, reach.finish(), grammar.may_be_empty)


class _Reach:
    """Everything that can be reached without a byte."""

    def __init__(self, grammar: Grammar):
        self._grammar = grammar
        self._readings: dict[tuple[int, int, int, int, int], Reading] = {}
        self._entered: dict[int, Frame] = {}
        self._fresh: dict[int, Frame] = {}
        self._seen: set[tuple[int, int, int]] = set()
        self.complete = False

    def keep(self, terminal: int, state: int, sequence: int, at: int, frame: Frame) -> None:
        """Add a reading in the middle of a terminal."""
        self._readings[terminal, state, sequence, at, id(frame)] = (terminal, state, sequence, at, frame)

    def follow(self, sequence: int, at: int, frame: Frame) -> None:
        """Go on in a sequence, and behind every rule that ends with it."""
        stack = [(sequence, at, frame)]
        while stack:
            sequence, at, frame = stack.pop()
            key = (sequence, at, id(frame))
            if key in self._seen:
                continue
            self._seen.add(key)
            if sequence < 0:
                self.complete = True
            elif at == len(self._grammar.sequences[sequence]):
                stack += frame.after.values()
            else:
                symbol = self._grammar.sequences[sequence][at]
                if symbol < 0:
                    start = self._grammar.terminals[~symbol].start
                    self.keep(~symbol, start, sequence, at + 1, frame)
                else:
                    stack += self.enter(symbol, sequence, at + 1, frame)

    def enter(self, rule: int, sequence: int, at: int, frame: Frame) -> list[tuple[int, int, Frame]]:
        """Enter a rule, and return where each of its choices begins if it is new here."""
        known = self._entered.get(rule)
        entered = known or self._entered.setdefault(rule, Frame())
        ends = sequence >= 0 and at == len(self._grammar.sequences[sequence])
        if ends and id(frame) not in self._fresh:
            # Nothing is left in the outer rule: a list does not nest with every item.
            entered.after.update(frame.after)
        else:
            entered.after[sequence, at, id(frame)] = (sequence, at, frame)
        if known is not None:
            return []
        self._fresh[id(entered)] = entered
        return [(number, 0, entered) for number in self._grammar.choices[rule]]

    def begin(self, bottom: Frame) -> None:
        """Enter the root rule."""
        for sequence, at, frame in self.enter(self._grammar.root, -1, 0, bottom):
            self.follow(sequence, at, frame)

    def finish(self) -> tuple[Reading, ...]:
        """The readings, once costs and depths of the new frames are known."""
        rests = self._grammar.rests
        changed = True
        while changed:
            changed = False
            for frame in self._fresh.values():
                cost = min(
                    (rests[sequence][at] if sequence >= 0 else 0) + outer.cost
                    for sequence, at, outer in frame.after.values()
                )
                depth = 1 + max(outer.depth for _, _, outer in frame.after.values())
                if cost < frame.cost or depth > frame.depth:
                    frame.cost, frame.depth = cost, depth
                    changed = True
        return tuple(self._readings.values())
