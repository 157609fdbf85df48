"""Derivatives of byte regular expressions: what is left to match, and in how few bytes.

States are small integers of one `Space`, equal for equal expressions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from gossamer.grammar.chars import Alt, Both, Cat, Chars, Regex, Repeat

NONE = 0
"""The state that nothing completes."""
DONE = 1
"""The state of a text that is complete and has no continuation."""
NEVER = 1 << 60
"""The cost of what cannot be completed."""
MAX_WORK = 100_000
"""Parts of expressions that the search for an intersection's shortest text may look at: about a second."""
MAX_STATES = 500_000

_Item = tuple[object, ...]
_ALL = (1 << 256) - 1


class TooComplex(ValueError):
    """An expression beyond what can be worked through."""


class Space:
    """Interned expressions of bytes."""

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._ids: dict[_Item, int] = {}
        self._nullable: list[bool] = []
        self._costs: list[int | None] = []
        self._next: list[dict[int, int]] = []
        self._lowered: dict[Regex, int] = {}
        self._work = 0
        self._make(("set", 0), False, NEVER)
        self._make(("eps",), True, 0)

    def state(self, regex: Regex) -> int:
        """The state before the first byte of the expression's UTF-8."""
        known = self._lowered.get(regex)
        if known is None:
            known = self._lowered[regex] = self._lower(regex)
        return known

    def accepts(self, state: int) -> bool:
        """Whether the text may end here."""
        return self._nullable[state]

    def step(self, state: int, byte: int) -> int:
        """The state after one byte; `NONE` if no text has it here."""
        row = self._next[state]
        found = row.get(byte)
        if found is None:
            found = row[byte] = self._derive(state, byte)
        return found

    def cost(self, state: int) -> int:
        """The fewest bytes that complete the text, `NEVER` if none do.

        Raises:
            TooComplex: the search was given up.
        """
        known = self._costs[state]
        return self._search(state) if known is None else known

    def is_over(self, state: int) -> bool:
        """Whether no byte can follow."""
        return state == DONE

    def best_byte(self, state: int) -> int:
        """The first byte of a shortest completion; the least of them."""
        wanted = self.cost(state) - 1
        for byte in self.representatives(state):
            after = self.step(state, byte)
            if after != NONE and self.cost(after) == wanted:
                return byte
        raise TooComplex("no byte leads on from a state that has a completion")

    def matches(self, regex: Regex, text: str) -> bool:
        """Whether the whole text matches."""
        state = self.state(regex)
        for byte in text.encode():
            state = self.step(state, byte)
        return self.accepts(state)

    def representatives(self, state: int) -> list[int]:
        """One byte of each class of bytes that lead to the same state."""
        classes = [_ALL]
        masks = list(self._firsts(state))
        self._work += len(masks)
        for mask in set(masks):
            classes = [part for c in classes for part in (c & mask, c & ~mask) if part]
        return sorted((c & -c).bit_length() - 1 for c in classes)

    def _make(self, item: _Item, nullable: bool, cost: int | None) -> int:
        found = self._ids.get(item)
        if found is None:
            found = self._ids[item] = len(self._items)
            if found > MAX_STATES:
                raise TooComplex(f"it takes more than {MAX_STATES} states")
            self._items.append(item)
            self._nullable.append(nullable)
            self._costs.append(cost)
            self._next.append({})
        return found

    def _set(self, mask: int) -> int:
        return self._make(("set", mask), False, 1) if mask else NONE

    def _cat(self, first: int, rest: int) -> int:
        if first == NONE or rest == NONE:
            return NONE
        if first == DONE:
            return rest
        if rest == DONE:
            return first
        item = self._items[first]
        if item[0] == "cat":
            return self._cat(_at(item, 1), self._cat(_at(item, 2), rest))
        cost = min(NEVER, self.cost(first) + self.cost(rest))
        return self._make(("cat", first, rest), self._nullable[first] and self._nullable[rest], cost)

    def _alt(self, parts: Iterable[int]) -> int:
        flat: set[int] = set()
        mask = 0
        stack = list(parts)
        while stack:
            part = stack.pop()
            self._work += 1
            item = self._items[part]
            if item[0] == "alt":
                stack += _parts(item)
            elif item[0] == "set":
                mask |= _at(item, 1)
            else:
                flat.add(part)
        if mask:
            flat.add(self._set(mask))
        if len(flat) < 2:
            return next(iter(flat), NONE)
        found = tuple(sorted(flat))
        nullable = any(self._nullable[p] for p in found)
        return self._make(("alt", found), nullable, min(self.cost(p) for p in found))

    def _repeat(self, part: int, low: int, high: int | None) -> int:
        if high == 0 or part == DONE or (part == NONE and low == 0):
            return DONE
        if part == NONE:
            return NONE
        if (low, high) == (1, 1):
            return part
        nullable = low == 0 or self._nullable[part]
        cost = 0 if nullable else min(NEVER, self.cost(part) * low)
        return self._make(("repeat", part, low, high), nullable, cost)

    def _both(self, parts: Iterable[int]) -> int:
        distinct = tuple(sorted(set(parts)))
        if NONE in distinct:
            return NONE
        if len(distinct) == 1:
            return distinct[0]
        nullable = all(self._nullable[p] for p in distinct)
        return self._make(("both", distinct), nullable, 0 if nullable else None)

    def _derive(self, state: int, byte: int) -> int:
        self._work += 1
        item = self._items[state]
        match item[0]:
            case "set":
                return DONE if _at(item, 1) >> byte & 1 else NONE
            case "eps":
                return NONE
            case "cat":
                first, rest = _at(item, 1), _at(item, 2)
                after = self._cat(self.step(first, byte), rest)
                return self._alt((after, self.step(rest, byte))) if self._nullable[first] else after
            case "alt":
                return self._alt([self.step(p, byte) for p in _parts(item)])
            case "repeat":
                part, low = _at(item, 1), _at(item, 2)
                high = item[3]
                left = high - 1 if isinstance(high, int) else None
                return self._cat(self.step(part, byte), self._repeat(part, max(0, low - 1), left))
            case _:
                return self._both([self.step(p, byte) for p in _parts(item)])

    def _firsts(self, state: int) -> Iterator[int]:
        item = self._items[state]
        match item[0]:
            case "set":
                yield _at(item, 1)
            case "cat":
                yield from self._firsts(_at(item, 1))
                if self._nullable[_at(item, 1)]:
                    yield from self._firsts(_at(item, 2))
            case "alt" | "both":
                for part in _parts(item):
                    yield from self._firsts(part)
            case "repeat":
                yield from self._firsts(_at(item, 1))

    def _search(self, start: int) -> int:
        """A* over the states of an intersection; what its parts need at least never overestimates."""
        reached = {start: 0}
        came: dict[int, int] = {}
        queue = [(self._least(start), start)]
        seen: set[int] = set()
        begun = self._work
        while queue:
            total, state = heapq.heappop(queue)
            if state in seen:
                continue
            seen.add(state)
            if self._nullable[state] or self._costs[state] is not None:
                self._note(state, total, came, reached)
                return total
            if self._work > begun + MAX_WORK:
                raise TooComplex(f"its shortest text was not found among {len(seen)} states")
            for byte in self.representatives(state):
                after = self.step(state, byte)
                done = reached[state] + 1
                if after != NONE and done < reached.get(after, NEVER):
                    reached[after], came[after] = done, state
                    heapq.heappush(queue, (done + self._least(after), after))
        self._costs[start] = NEVER
        return NEVER

    def _least(self, state: int) -> int:
        known = self._costs[state]
        if known is not None:
            return known
        return max(self.cost(p) for p in _parts(self._items[state]))

    def _note(self, state: int, total: int, came: dict[int, int], reached: dict[int, int]) -> None:
        """Keep the cost of every state on a shortest path."""
        while True:
            self._costs[state] = total - reached[state]
            if state not in came:
                return
            state = came[state]

    def _lower(self, regex: Regex) -> int:
        match regex:
            case Chars():
                return self._alt([self._sequence(s) for low, high in regex.ranges for s in utf8(low, high)])
            case Cat():
                state = DONE
                for part in reversed(regex.parts):
                    state = self._cat(self.state(part), state)
                return state
            case Alt():
                return self._alt([self.state(p) for p in regex.parts])
            case Repeat():
                return self._repeat(self.state(regex.part), regex.low, regex.high)
            case Both():
                return self._both([self.state(p) for p in regex.parts])

    def _sequence(self, spans: tuple[tuple[int, int], ...]) -> int:
        state = DONE
        for low, high in reversed(spans):
            state = self._cat(self._set(((1 << (high + 1)) - 1) & ~((1 << low) - 1)), state)
        return state


def utf8(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The byte ranges, one after the other, that encode a range of code points without surrogates."""
    for edge in (0x7F, 0x7FF, 0xFFFF):
        if low <= edge < high:
            yield from utf8(low, edge)
            yield from utf8(edge + 1, high)
            return
    first, last = chr(low).encode(), chr(high).encode()
    for i in range(1, len(first)):
        block = (1 << (6 * i)) - 1
        if low & ~block != high & ~block:
            if low & block:
                yield from utf8(low, low | block)
                yield from utf8((low | block) + 1, high)
                return
            if high & block != block:
                yield from utf8(low, (high & ~block) - 1)
                yield from utf8(high & ~block, high)
                return
    yield tuple(zip(first, last, strict=True))


def _at(item: _Item, index: int) -> int:
    value = item[index]
    assert isinstance(value, int)
    return value


def _parts(item: _Item) -> tuple[int, ...]:
    value = item[1]
    assert isinstance(value, tuple)
    return value
