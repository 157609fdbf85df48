"""A schema with its references followed and its alternatives spread out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gossamer.grammar.errors import SchemaError
from gossamer.grammar.flat import Flat, Node, check_keywords, kind_of, merge, same
from gossamer.grammar.scalars import Scalars

MAX_DEPTH = 64
"""Levels of JSON in a schema."""
MAX_NODES = 20_000
"""JSON values in a schema."""
MAX_TEXT = 256 * 1024
"""Characters of all its strings together."""
MAX_ALTERNATIVES = 256
"""Combinations that nested alternatives may multiply to."""

Combination = tuple[Node, ...]


class Document:
    """A JSON Schema as sent.

    Raises:
        SchemaError: it is larger or deeper than what is worked with.
    """

    def __init__(self, schema: Any, scalars: Scalars):
        _check_size(schema)
        self.root = Node("#", schema)
        self._scalars = scalars
        self._known: dict[str, list[Combination]] = {}
        self._open: set[str] = set()

    def flats(self, nodes: Sequence[Node]) -> list[Flat]:
        """The plain demands, any of which a value must meet to meet all nodes.

        Raises:
            SchemaError: a keyword that cannot be enforced, or is malformed.
        """
        combinations: list[Combination] = [()]
        for node in nodes:
            combinations = self._product(combinations, self._alternatives(node), node, "anyOf")
        return [flat for flat in map(merge, combinations) if flat.kinds]

    def kinds(self, nodes: Sequence[Node]) -> set[str]:
        """Kinds of the values that meet all nodes, as far as their types and lists of values tell."""
        return {kind for flat in self.flats(nodes) for kind in _kinds(flat)}

    def _alternatives(self, node: Node) -> list[Combination]:
        known = self._known.get(node.path)
        if known is not None:
            return known
        check_keywords(node)
        if node.path in self._open:
            raise SchemaError(node.path, "$ref", "leads back to itself with no value in between")
        self._open.add(node.path)
        found: list[Combination] = [(node,)]
        if isinstance(node.schema, Mapping):
            if "$ref" in node.schema:
                found = self._product(found, self._alternatives(self._target(node)), node, "$ref")
            for part in self._parts(node, "allOf"):
                found = self._product(found, self._alternatives(part), node, "allOf")
            for keyword in ("anyOf", "oneOf"):
                if keyword in node.schema:
                    options = [self._alternatives(part) for part in self._parts(node, keyword)]
                    if keyword == "oneOf":
                        self._check_disjoint(node, options)
                    found = self._product(found, [c for option in options for c in option], node, keyword)
        self._open.remove(node.path)
        self._known[node.path] = found
        return found

    def _product(
        self, left: Iterable[Combination], right: Sequence[Combination], node: Node, keyword: str
    ) -> list[Combination]:
        found: dict[tuple[str, ...], Combination] = {}
        for one in left:
            for other in right:
                nodes = tuple({n.path: n for n in (*one, *other)}.values())
                found[tuple(n.path for n in nodes)] = nodes
                if len(found) > MAX_ALTERNATIVES:
                    raise SchemaError(
                        node.path, keyword, f"multiplies to more than {MAX_ALTERNATIVES} alternatives"
                    )
        return list(found.values())

    def _parts(self, node: Node, keyword: str) -> list[Node]:
        parts = node.schema.get(keyword, ())
        if keyword in node.schema and (not isinstance(parts, list) or not parts):
            raise SchemaError(node.path, keyword, "must be a non-empty array of schemas")
        return [node.child(keyword, index) for index in range(len(parts))]

    def _target(self, node: Node) -> Node:
        reference = node.schema["$ref"]
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaError(node.path, "$ref", f"must point into the schema itself, got {reference!r:.80}")
        target = self.root
        for part in unquote(reference)[2:].split("/") if reference != "#" else ():
            key = part.replace("~1", "/").replace("~0", "~")
            inside = target.schema
            try:
                target = target.child(int(key) if isinstance(inside, list) else key)
            except (KeyError, IndexError, TypeError, ValueError):
                raise SchemaError(node.path, "$ref", f"points to nothing: {reference!r:.80}") from None
        return target

    def _check_disjoint(self, node: Node, options: Sequence[Sequence[Combination]]) -> None:
        """A value that meets two branches fails a oneOf; decoding cannot look at both, so none may exist."""
        flats = [[flat for flat in map(merge, option) if flat.kinds] for option in options]
        for index, ones in enumerate(flats):
            for others in flats[:index]:
                if not all(self._disjoint(one, other, 0) for one in ones for other in others):
                    raise SchemaError(
                        node.path,
                        "oneOf",
                        "has branches that may hold at the same time; use anyOf, or tell the branches apart "
                        "by type or by a required property with a const of its own",
                    )

    def _disjoint(self, one: Flat, other: Flat, depth: int) -> bool:
        common = _kinds(one) & _kinds(other)
        if not common:
            return True
        if one.values is not None or other.values is not None:
            lists = [flat.values for flat in (one, other) if flat.values is not None]
            rest = other if one.values is not None else one
            if len(lists) == 2:
                return not any(same(v, w) for v in lists[0] for w in lists[1])
            scalar = [v for v in lists[0] if not isinstance(v, list | Mapping)]
            return len(scalar) == len(lists[0]) and not any(self._scalars.fits(v, rest) for v in scalar)
        return common == {"object"} and depth < 3 and self._told_apart(one, other, depth)

    def _told_apart(self, one: Flat, other: Flat, depth: int) -> bool:
        for name in one.required:
            if name not in other.required:
                continue
            sides = []
            for flat in (one, other):
                nodes = [n for n in flat.having("properties") if name in n.schema["properties"]]
                sides.append(self.flats([n.child("properties", name) for n in nodes]))
            if all(self._disjoint(a, b, depth + 1) for a in sides[0] for b in sides[1]):
                return True
        return False


def _kinds(flat: Flat) -> set[str]:
    if flat.values is None:
        return flat.kinds
    return flat.kinds & set(map(kind_of, flat.values))


def _check_size(schema: Any) -> None:
    stack, num_nodes, num_chars = [(schema, 1)], 0, 0
    while stack:
        value, depth = stack.pop()
        num_nodes += 1
        if depth > MAX_DEPTH:
            raise SchemaError("#", "", f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, str):
            num_chars += len(value)
        elif isinstance(value, Mapping):
            num_chars += sum(map(len, value))
            stack += [(v, depth + 1) for v in value.values()]
        elif isinstance(value, list):
            stack += [(v, depth + 1) for v in value]
        if num_nodes > MAX_NODES:
            raise SchemaError("#", "", f"holds more than {MAX_NODES} values")
        if num_chars > MAX_TEXT:
            raise SchemaError("#", "", f"holds more than {MAX_TEXT} characters of text")
