"""A context-free grammar over terminals, with what each part of it costs at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gossamer.grammar.automaton import NEVER, Space
from gossamer.grammar.chars import Regex
from gossamer.grammar.terminals import Spelled, Terminal, Words
from gossamer.grammar.vocabulary import Vocabulary

Symbol = int
"""A rule's number, or ``~`` of a terminal's."""
MAX_SYMBOLS = 60_000


MAX_CHAIN = 400
"""Rules inside of rules: llguidance walks them recursively, and ten times as many exhaust its stack."""


class TooLarge(ValueError):
    """A grammar beyond `MAX_SYMBOLS` or `MAX_CHAIN`."""


class Rules:
    """Rules under construction; `finish` makes them a `Grammar`.

    A rule is a choice of sequences.  No sequence is empty and no terminal matches the empty text, so that
    every rule takes at least one byte.
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.space = Space()
        self._terminals: list[Terminal] = []
        self._known: dict[object, Symbol] = {}
        self._choices: list[list[tuple[Symbol, ...]]] = []
        self._num_symbols = 0

    def words(self, *words: str) -> Symbol:
        """A terminal of exactly these strings."""
        key = tuple(sorted(set(words)))
        found = self._known.get(key)
        return self._terminal(key, Words(key, self.vocabulary)) if found is None else found

    def spelled(self, regex: Regex) -> Symbol:
        """A terminal of the strings that an expression matches."""
        found = self._known.get(regex)
        return self._terminal(regex, Spelled(regex, self.space, self.vocabulary)) if found is None else found

    def rule(self) -> Symbol:
        """A new rule without choices."""
        self._choices.append([])
        return len(self._choices) - 1

    def add(self, rule: Symbol, *sequence: Symbol) -> None:
        """Give a rule one more choice.

        Raises:
            TooLarge: the grammar has grown beyond what is worked with.
        """
        self._num_symbols += len(sequence)
        if self._num_symbols > MAX_SYMBOLS:
            raise TooLarge(f"takes more than {MAX_SYMBOLS} grammar symbols")
        self._choices[rule].append(sequence)

    def finish(self, root: Symbol, *, may_be_empty: bool = False) -> Grammar:
        """The grammar that starts with ``root``; choices that can never be completed are left out."""
        return Grammar(self._terminals, self._choices, root, self.vocabulary, may_be_empty=may_be_empty)

    def _terminal(self, key: object, terminal: Terminal) -> Symbol:
        self._terminals.append(terminal)
        symbol = self._known[key] = ~(len(self._terminals) - 1)
        return symbol


class Grammar:
    """Finished rules.

    Attributes:
        terminals: By number.
        choices: For each rule the numbers of its sequences.
        sequences: Symbols by sequence number.
        rests: For each sequence the cost of its symbols from each place on; one entry more than symbols.
        root: The rule it begins with.
        may_be_empty: Whether the empty text belongs to it as well.
        cost: Tokens that suffice for some text, `NEVER` if there is none.
    """

    def __init__(
        self,
        terminals: Sequence[Terminal],
        choices: Sequence[Sequence[tuple[Symbol, ...]]],
        root: Symbol,
        vocabulary: Vocabulary,
        *,
        may_be_empty: bool,
    ):
        self.terminals = tuple(terminals)
        self.vocabulary = vocabulary
        self.root = root
        self.may_be_empty = may_be_empty
        self._terminal_costs = [t.cost(t.start) for t in self.terminals]
        costs = self._rule_costs(choices)
        self.choices: list[tuple[int, ...]] = []
        self.sequences: list[tuple[Symbol, ...]] = []
        self.rests: list[tuple[int, ...]] = []
        for rule in choices:
            numbers: list[int] = []
            for sequence in rule:
                rests = [0]
                for symbol in reversed(sequence):
                    rests.append(rests[-1] + self._cost(symbol, costs))
                if rests[-1] < NEVER:
                    numbers.append(len(self.sequences))
                    self.sequences.append(sequence)
                    self.rests.append(tuple(reversed(rests)))
            self.choices.append(tuple(numbers))
        self.cost = 0 if may_be_empty else costs[root]
        if self._longest_chain() > MAX_CHAIN:
            raise TooLarge(f"nests more than {MAX_CHAIN} rules in each other")

    @property
    def is_only_empty(self) -> bool:
        """Whether the empty text is all there is."""
        return self.may_be_empty and not self.choices[self.root]

    def lark(self) -> str:
        """The grammar as llguidance reads it."""
        # Forced text may be cut in any way: costs count the fewest tokens, not the usual ones.
        lines = [
            '%llguidance {"no_forcing": true}',
            f"start: r{self.root}" + (' | ""' if self.may_be_empty else ""),
        ]
        reached, terminals, stack = {self.root}, set(), [self.root]
        while stack:
            rule = stack.pop()
            texts = []
            for number in self.choices[rule]:
                names = []
                for symbol in self.sequences[number]:
                    if symbol < 0:
                        terminals.add(~symbol)
                        names.append(f"T{~symbol}")
                    else:
                        names.append(f"r{symbol}")
                        if symbol not in reached:
                            reached.add(symbol)
                            stack.append(symbol)
                texts.append(" ".join(names))
            lines.append(f"r{rule}: " + "\n  | ".join(texts))
        lines += [f"T{number}: {self.terminals[number].pattern()}" for number in sorted(terminals)]
        return "\n".join(lines) + "\n"

    def _longest_chain(self) -> int:
        """Most rules that a walk without visiting one twice can be in at a time, or more.

        Rules that reach each other are counted as if all were in the chain (Tarjan's algorithm).
        """
        number: dict[int, int] = {}
        low: dict[int, int] = {}
        longest: dict[int, int] = {}
        open_rules: list[int] = []
        walk = [(self.root, self._inner(self.root))]
        while walk:
            rule, inner = walk[-1]
            if rule not in number:
                number[rule] = low[rule] = len(number)
                open_rules.append(rule)
            following = next((r for r in inner if r not in number), None)
            if following is not None:
                walk.append((following, self._inner(following)))
                continue
            walk.pop()
            reached = self._inner(rule)
            low[rule] = min([low[rule], *(low[r] for r in reached if r not in longest)])
            if low[rule] == number[rule]:
                group = open_rules[open_rules.index(rule) :]
                del open_rules[-len(group) :]
                beyond = {r for member in group for r in self._inner(member)} - set(group)
                depth = len(group) + max((longest[r] for r in beyond), default=0)
                longest.update(dict.fromkeys(group, depth))
        return longest[self.root]

    def _inner(self, rule: int) -> Iterator[int]:
        """The rules that a rule's choices hold."""
        for sequence in self.choices[rule]:
            yield from (symbol for symbol in self.sequences[sequence] if symbol >= 0)

    def _cost(self, symbol: Symbol, costs: Sequence[int]) -> int:
        return min(NEVER, costs[symbol] if symbol >= 0 else self._terminal_costs[~symbol])

    def _rule_costs(self, choices: Sequence[Sequence[tuple[Symbol, ...]]]) -> list[int]:
        """The least fixed point; a rule is looked at again only when one that it uses got cheaper."""
        costs = [NEVER] * len(choices)
        users: list[set[int]] = [set() for _ in choices]
        for rule, sequences in enumerate(choices):
            for sequence in sequences:
                for symbol in sequence:
                    if symbol >= 0:
                        users[symbol].add(rule)
        waiting = dict.fromkeys(reversed(range(len(choices))))
        while waiting:
            rule, _ = waiting.popitem()
            totals = [sum(self._cost(s, costs) for s in sequence) for sequence in choices[rule]]
            cost = min(totals, default=NEVER)
            if cost < costs[rule]:
                costs[rule] = cost
                waiting.update(dict.fromkeys(users[rule]))
        return costs
