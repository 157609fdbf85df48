"""What a grammar is spelled with.  Costs are tokens that suffice for what is left, as few as are known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gossamer.grammar.automaton import NEVER, NONE, Space
from gossamer.grammar.chars import Alt, Regex, text, to_rust
from gossamer.grammar.vocabulary import Vocabulary

MAX_TOKEN = 16
"""Bytes of the longest token that costs look for: longer ones save too little to be worth the search."""


class Terminal(Protocol):
    """A set of non-empty byte strings, walked byte by byte."""

    start: int

    def step(self, state: int, byte: int) -> int:
        """The state after a byte, -1 if no string has it here."""
        ...

    def ends(self, state: int) -> bool:
        """Whether a string may end here."""
        ...

    def goes_on(self, state: int) -> bool:
        """Whether a string may have another byte here."""
        ...

    def cost(self, state: int) -> int:
        """Tokens that suffice to end a string from here, 0 where it may end."""
        ...

    def next_token(self, state: int) -> int:
        """A token that lowers the cost by one; only where it is above 0."""
        ...

    def pattern(self) -> str:
        """The strings as llguidance has them."""
        ...


class Words:
    """A finite set of strings: keys, punctuation, enumerations.  Costs are those of the longest tokens."""

    def __init__(self, words: Iterable[str], vocabulary: Vocabulary):
        self._words = tuple(sorted(set(words)))
        self._children: list[dict[int, int]] = [{}]
        self._final = [False]
        self._longest = min(vocabulary.longest, MAX_TOKEN)
        for word in self._words:
            node = 0
            for byte in word.encode():
                node = self._child(node, byte)
            self._final[node] = True
        self.start = 0
        self._costs = [0] * len(self._final)
        self._best = [-1] * len(self._final)
        # Children have higher numbers than their parents.
        for node in reversed(range(len(self._final))):
            if not self._final[node]:
                self._costs[node], self._best[node] = self._cheapest(node, vocabulary)

    def step(self, state: int, byte: int) -> int:
        """See `Terminal.step`."""
        return self._children[state].get(byte, -1)

    def ends(self, state: int) -> bool:
        """See `Terminal.ends`."""
        return self._final[state]

    def goes_on(self, state: int) -> bool:
        """See `Terminal.goes_on`."""
        return bool(self._children[state])

    def cost(self, state: int) -> int:
        """See `Terminal.cost`."""
        return self._costs[state]

    def next_token(self, state: int) -> int:
        """See `Terminal.next_token`."""
        return self._best[state]

    def pattern(self) -> str:
        """See `Terminal.pattern`."""
        return to_rust(Alt(tuple(text(word) for word in self._words)))

    def _child(self, node: int, byte: int) -> int:
        found = self._children[node].get(byte)
        if found is None:
            found = self._children[node][byte] = len(self._children)
            self._children.append({})
            self._final.append(False)
        return found

    def _cheapest(self, node: int, vocabulary: Vocabulary) -> tuple[int, int]:
        best, best_id = NEVER, -1
        stack = [(node, b"")]
        while stack:
            at, spelled = stack.pop()
            if spelled and (token_id := vocabulary.ids.get(spelled)) is not None:
                cost = 1 + self._costs[at]
                if (cost, token_id) < (best, best_id):
                    best, best_id = cost, token_id
            if len(spelled) < self._longest:
                stack += [(child, spelled + bytes([b])) for b, child in self._children[at].items()]
        return best, best_id


class Spelled:
    """The strings of an expression.  Costs count a token for each byte, which always suffices."""

    def __init__(self, regex: Regex, space: Space, vocabulary: Vocabulary):
        self._regex = regex
        self._space = space
        self._byte_ids = vocabulary.byte_ids
        self.start = space.state(regex)

    def step(self, state: int, byte: int) -> int:
        """See `Terminal.step`."""
        after = self._space.step(state, byte)
        return -1 if after == NONE else after

    def ends(self, state: int) -> bool:
        """See `Terminal.ends`."""
        return self._space.accepts(state)

    def goes_on(self, state: int) -> bool:
        """See `Terminal.goes_on`."""
        return not self._space.is_over(state)

    def cost(self, state: int) -> int:
        """See `Terminal.cost`."""
        return self._space.cost(state)

    def next_token(self, state: int) -> int:
        """See `Terminal.next_token`."""
        return self._byte_ids[self._space.best_byte(state)]

    def pattern(self) -> str:
        """See `Terminal.pattern`."""
        return to_rust(self._regex)
