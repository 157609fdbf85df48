"""Arrays and objects as rules.

Counts and optional properties are halved again and again rather than chained: a grammar that is as deep as
it is long would exhaust the stack of whoever walks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.grammar.chars import Alt, Both, Cat, Regex, Repeat, chars, optional, quoted, text, wrapped
from gossamer.grammar.flat import Node
from gossamer.grammar.rules import Rules, Symbol

Nodes = tuple[Node, ...]

# A line end with its indent, or a space: what printers write; no white space without end.
_GAP = optional(Alt((text(" "), Cat((text("\n"), Repeat(chars(" "), 0, 40))))))


@dataclass(frozen=True, kw_only=True)
class Property:
    """A named property: its demands, and whether it must be there."""

    name: str
    nodes: Nodes
    required: bool


@dataclass(frozen=True, kw_only=True)
class Object:
    """An object's properties in order, and the demands of further ones: ``free``, None for no others.

    ``low`` and ``high`` count properties; further names match all ``key_parts``.
    """

    properties: tuple[Property, ...]
    free: Nodes | None
    low: int
    high: int | None
    key_parts: tuple[Regex, ...] = ()


class Lists:
    """Writes arrays and objects.

    Args:
        rules: Where to.
        value: The rule of a value that meets some nodes.
    """

    def __init__(self, rules: Rules, value: Callable[[Nodes], Symbol]):
        self._rules = rules
        self._value = value
        self._runs: dict[tuple[str, Symbol, int], Symbol] = {}

    def array(
        self, rule: Symbol, prefix: Sequence[Nodes], item: Nodes, *, low: int, high: int | None
    ) -> None:
        """Give ``rule`` arrays of ``low`` to ``high`` items: those of ``prefix``, then of ``item``."""
        rules = self._rules
        close = rules.spelled(Cat((_GAP, text("]"))))
        if low == 0:
            rules.add(rule, rules.words("[]", "[ ]"))
        if high == 0:
            return
        firsts = [self._value(nodes) for nodes in prefix or (item,)]
        tails = [rules.rule() for _ in firsts]
        rules.add(rule, rules.spelled(Cat((text("["), _GAP))), firsts[0], tails[0])
        for count, tail in enumerate(tails, start=1):
            if count >= low:
                rules.add(tail, close)
            if high is not None and count >= high:
                continue
            if count < len(firsts):
                rules.add(tail, self._comma(), firsts[count], tails[count])
            else:
                self._more(tail, item, max(low - count, 1), None if high is None else high - count, close)

    def _more(self, rule: Symbol, item: Nodes, low: int, high: int | None, close: Symbol) -> None:
        """``low`` to ``high`` more items, at least one, and the end."""
        rules = self._rules
        unit = rules.rule()
        rules.add(unit, self._comma(), self._value(item))
        if high is None:
            rest = rules.rule()
            rules.add(rest, close)
            rules.add(rest, unit, rest)
            rules.add(rule, self._exactly(unit, low), rest)
        elif low <= high:
            rules.add(rule, self._exactly(unit, low), close)
            if low < high:
                rules.add(rule, self._exactly(unit, low), self._up_to(unit, high - low), close)

    def _exactly(self, unit: Symbol, count: int) -> Symbol:
        if count == 1:
            return unit
        key = ("exactly", unit, count)
        if key not in self._runs:
            self._runs[key] = rule = self._rules.rule()
            half = count // 2
            self._rules.add(rule, self._exactly(unit, half), self._exactly(unit, count - half))
        return self._runs[key]

    def _up_to(self, unit: Symbol, count: int) -> Symbol:
        """From one to ``count`` units: some of the first half, or all of it and some of the second."""
        if count == 1:
            return unit
        key = ("up to", unit, count)
        if key not in self._runs:
            self._runs[key] = rule = self._rules.rule()
            half = count // 2
            self._rules.add(rule, self._up_to(unit, half))
            self._rules.add(rule, self._exactly(unit, half), self._up_to(unit, count - half))
        return self._runs[key]

    def object(self, rule: Symbol, shape: Object) -> None:
        """Give ``rule`` the objects of a shape."""
        rules = self._rules
        num_required = sum(p.required for p in shape.properties)
        if num_required == 0 and shape.low == 0:
            rules.add(rule, rules.words("{}", "{ }"))
        if shape.high == 0:
            return
        opening, close = rules.spelled(Cat((text("{"), _GAP))), rules.spelled(Cat((_GAP, text("}"))))
        bounded = shape.high is not None and (shape.free is not None or shape.high < len(shape.properties))
        if bounded or shape.low > num_required:
            counted = _Counted(self, shape, close)
            rules.add(rule, opening, counted.at(0, 0))
            counted.work()
            return
        named = self._some(shape.properties) if shape.properties else None
        if named is not None:
            rules.add(rule, opening, named, close)
        if shape.free is not None:
            free = self._free(shape)
            if num_required == 0:
                rules.add(rule, opening, free, close)
            if named is not None:
                rules.add(rule, opening, named, self._comma(), free, close)

    def _some(self, properties: Sequence[Property]) -> Symbol:
        """At least one of the properties, the required ones among them, with commas in between."""
        rule = self._rules.rule()
        if len(properties) == 1:
            self._rules.add(rule, *self.member(properties[0]))
            return rule
        middle = len(properties) // 2
        halves = (properties[:middle], properties[middle:])
        left, right = (self._some(half) for half in halves)
        self._rules.add(rule, left, self._comma(), right)
        if not any(p.required for p in halves[1]):
            self._rules.add(rule, left)
        if not any(p.required for p in halves[0]):
            self._rules.add(rule, right)
        return rule

    def _free(self, shape: Object) -> Symbol:
        """At least one property that nothing names."""
        rule, rest = self._rules.rule(), self._rules.rule()
        member = self.free_member(shape)
        self._rules.add(rule, *member)
        self._rules.add(rule, *member, rest)
        self._rules.add(rest, self._comma(), rule)
        return rule

    def member(self, found: Property) -> tuple[Symbol, Symbol]:
        """A property with its value."""
        name = json_text(found.name)
        return self._rules.words(name + ":", name + ": "), self._value(found.nodes)

    def free_member(self, shape: Object) -> tuple[Symbol, Symbol]:
        """Any other name with a value."""
        assert shape.free is not None
        parts = [quoted(part) for part in shape.key_parts]
        key = wrapped('"', joined(parts), Cat((text('":'), optional(text(" ")))))
        return self._rules.spelled(key), self._value(shape.free)

    def _comma(self) -> Symbol:
        return self._rules.spelled(Cat((_GAP, text(","), _GAP)))

    @property
    def rules(self) -> Rules:
        """Where it writes to."""
        return self._rules

    def after_comma(self, *sequence: Symbol) -> tuple[Symbol, ...]:
        """The sequence behind a comma."""
        return (self._comma(), *sequence)


class _Counted:
    """What is left of an object whose properties are counted."""

    def __init__(self, lists: Lists, shape: Object, close: Symbol):
        self._lists = lists
        self._shape = shape
        self._close = close
        self._known: dict[tuple[int, int], Symbol] = {}
        self._waiting: list[tuple[int, int]] = []

    def at(self, index: int, count: int) -> Symbol:
        """The rule after ``index`` properties were written or passed over, ``count`` of them written."""
        key = (index, count)
        if key not in self._known:
            self._known[key] = self._lists.rules.rule()
            self._waiting.append(key)
        return self._known[key]

    def work(self) -> None:
        """Make the choices of all rules."""
        rules, shape = self._lists.rules, self._shape
        while self._waiting:
            index, count = self._waiting.pop()
            rule = self._known[index, count]
            is_full = shape.high is not None and count >= shape.high
            if index < len(shape.properties):
                found = shape.properties[index]
                if not found.required:
                    rules.add(rule, self.at(index + 1, count))
                if not is_full:
                    self._member(rule, self._lists.member(found), self.at(index + 1, count + 1), count)
                continue
            if count and count >= shape.low:
                rules.add(rule, self._close)
            if shape.free is not None and not is_full:
                self._member(rule, self._lists.free_member(shape), self.at(index, count + 1), count)

    def _member(self, rule: Symbol, member: tuple[Symbol, Symbol], rest: Symbol, count: int) -> None:
        sequence = (*member, rest)
        self._lists.rules.add(rule, *(self._lists.after_comma(*sequence) if count else sequence))


def json_text(value: Any) -> str:
    """A value as this package writes it: a space after colon and comma, all characters as they are."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def joined(parts: Sequence[Regex]) -> Regex:
    """What all parts match; one intersection, however many the parts are of."""
    flat: list[Regex] = []
    for part in parts:
        flat += part.parts if isinstance(part, Both) else (part,)
    return flat[0] if len(flat) == 1 else Both(tuple(dict.fromkeys(flat)))
