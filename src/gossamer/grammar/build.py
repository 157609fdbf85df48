"""From schemas to rules: JSON text with the keys of an object in the order of its schema."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gossamer.grammar.automaton import NEVER, TooComplex
from gossamer.grammar.chars import (
    ANY,
    Regex,
    Repeat,
    quoted,
    text,
    without,
    wrapped,
)
from gossamer.grammar.document import Document
from gossamer.grammar.errors import NoValueError, SchemaError
from gossamer.grammar.flat import Flat, Node, kind_of, merge
from gossamer.grammar.layout import Lists, Nodes, Object, Property, joined, json_text
from gossamer.grammar.rules import Grammar, Rules, Symbol, TooLarge
from gossamer.grammar.scalars import Scalars
from gossamer.grammar.vocabulary import Vocabulary

MAX_COUNT = 10_000
"""Most items or properties that a bound may count."""
MAX_ENUM_TEXT = 64 * 1024
"""Characters of the values of one enum together."""
MAX_NAME = 256


class Builder:
    """The rules of one schema.

    Args:
        schema: As sent.
        vocabulary: What costs are counted in.

    Raises:
        SchemaError: see `Document`.
    """

    def __init__(self, schema: Any, vocabulary: Vocabulary):
        self._rules = Rules(vocabulary)
        self._scalars = Scalars(self._rules.space)
        self._document = Document(schema, self._scalars)
        self._lists = Lists(self._rules, self._value)
        self._known: dict[object, Symbol] = {}
        self._waiting: deque[tuple[Symbol, Nodes, frozenset[str] | None]] = deque()

    @property
    def root(self) -> Nodes:
        """The schema itself."""
        return (self._document.root,)

    def json(self, nodes: Nodes, kinds: Iterable[str] | None = None) -> Grammar:
        """The JSON texts of the values that meet all nodes; of these kinds only, if they are given.

        Raises:
            SchemaError: naming the keyword that cannot be enforced, or that no value is left.
        """
        wanted = None if kinds is None else frozenset(kinds)
        path = nodes[-1].path if nodes else "#"
        try:
            root = self._value(nodes, wanted)
            self._work()
            grammar = self._rules.finish(root)
        except (TooLarge, TooComplex) as error:
            raise SchemaError(path, "", str(error)) from None
        if grammar.cost >= NEVER:
            raise NoValueError(path, "", "holds for no value that can be written")
        return grammar

    def raw(self, nodes: Nodes) -> Grammar:
        """The strings that meet all nodes, written as they are: no quotes, no escapes.

        Raises:
            SchemaError: see `json`.
        """
        path = nodes[-1].path if nodes else "#"
        root, may_be_empty = self._rules.rule(), False
        for flat in self._document.flats(nodes):
            if "string" not in flat.kinds:
                continue
            if flat.values is not None:
                words = [v for v in self._listed(flat) if isinstance(v, str)]
                may_be_empty |= "" in words
                if any(words):
                    self._rules.add(root, self._rules.words(*filter(None, words)))
                continue
            parts = self._scalars.string(flat)
            if self._rules.space.accepts(self._rules.space.state(joined(parts))):
                may_be_empty = True
                parts.append(Repeat(ANY, 1, None))
            self._rules.add(root, self._spelled(flat, joined(parts)))
        grammar = self._rules.finish(root, may_be_empty=may_be_empty)
        if grammar.cost >= NEVER:
            raise NoValueError(path, "", "holds for no string")
        return grammar

    def kinds(self, nodes: Nodes) -> set[str]:
        """See `Document.kinds`."""
        return self._document.kinds(nodes)

    def object(self) -> Object | None:
        """The schema as one object with named properties only; None where it takes more to describe it."""
        flats = self._document.flats(self.root)
        if len(flats) != 1 or flats[0].kinds != {"object"} or flats[0].values is not None:
            return None
        shape = self._shape(flats[0])
        if shape is None or shape.free is not None or shape.high is not None:
            return None
        return shape if shape.low <= sum(p.required for p in shape.properties) else None

    def _value(self, nodes: Nodes, kinds: frozenset[str] | None = None) -> Symbol:
        """The rule of a value; its choices are made later, so that schemas may contain themselves."""
        key = (tuple(sorted({node.path for node in nodes})), kinds)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._rules.rule()
            self._waiting.append((found, nodes, kinds))
        return found

    def _work(self) -> None:
        while self._waiting:
            rule, nodes, kinds = self._waiting.popleft()
            for flat in self._document.flats(nodes):
                if kinds is not None:
                    flat.kinds &= kinds
                self._choices(rule, flat)

    def _choices(self, rule: Symbol, flat: Flat) -> None:
        if flat.values is not None:
            listed = self._listed(flat)
            if listed:
                self._rules.add(rule, self._rules.words(*map(json_text, listed)))
            return
        constants = [name for name in ("null", "true", "false") if _kind_of_word(name) in flat.kinds]
        if constants:
            self._rules.add(rule, self._rules.words(*constants))
        if "number" in flat.kinds:
            found = self._scalars.number(flat)
            if not isinstance(found, list):
                self._rules.add(rule, self._spelled(flat, found))
            elif found:
                self._rules.add(rule, self._rules.words(*found))
        if "string" in flat.kinds:
            parts = [quoted(part) for part in self._scalars.string(flat)]
            self._rules.add(rule, self._spelled(flat, wrapped('"', joined(parts), text('"'))))
        if "array" in flat.kinds:
            self._array(rule, flat)
        if "object" in flat.kinds and (shape := self._shape(flat)) is not None:
            self._lists.object(rule, shape)

    def _spelled(self, flat: Flat, regex: Regex) -> Symbol:
        try:
            symbol = self._rules.spelled(regex)
            self._rules.space.cost(self._rules.space.state(regex))
        except TooComplex as error:
            node, keyword = (flat.patterns[0][1], "pattern") if flat.patterns else (flat.nodes[-1], "")
            raise SchemaError(node.path, keyword, f"is too complex: {error}") from None
        return symbol

    def _listed(self, flat: Flat) -> list[Any]:
        """The values of an enum that meet the rest of the schema."""
        assert flat.values is not None
        found, num_chars = [], 0
        for value in flat.values:
            kind = kind_of(value)
            if kind in ("array", "object"):
                beside = [n for n in flat.nodes if any(k in n.schema for k in _PARTS[kind])]
                if beside:
                    raise SchemaError(
                        beside[0].path, "enum", f"is not supported beside keywords about {kind}s"
                    )
            if self._scalars.fits(value, flat):
                num_chars += len(json_text(value))
                found.append(value)
            if num_chars > MAX_ENUM_TEXT:
                raise SchemaError(flat.path, "enum", f"holds more than {MAX_ENUM_TEXT} characters of text")
        return found

    def _array(self, rule: Symbol, flat: Flat) -> None:
        _check_count(flat, minItems=flat.min_items, maxItems=flat.max_items)
        for node in flat.having("uniqueItems"):
            if node.schema["uniqueItems"] and (flat.max_items is None or flat.max_items > 1):
                raise SchemaError(node.path, "uniqueItems", "cannot be enforced for more than one item")
        prefix = max((len(n.schema["prefixItems"]) for n in flat.having("prefixItems")), default=0)
        items = [_item(flat, index) for index in range(prefix + 1)]
        self._lists.array(rule, items[:-1], items[-1], low=flat.min_items, high=flat.max_items)

    def _shape(self, flat: Flat) -> Object | None:
        """The properties of an object; None where none can satisfy the schema."""
        _check_count(flat, minProperties=flat.min_properties, maxProperties=flat.max_properties)
        key_parts, key_nodes = self._key_rules(flat)
        declared = {name: None for node in flat.having("properties") for name in node.schema["properties"]}
        properties, names = [], [*declared, *(n for n in flat.required if n not in declared)]
        for name in names:
            if len(name) > MAX_NAME:
                raise SchemaError(flat.path, "properties", f"has a name of more than {MAX_NAME} characters")
            nodes = self._property(flat, name)
            legal = all(self._rules.space.matches(part, name) for part in key_parts)
            if nodes is None or not legal:
                if name in flat.required:
                    return None
                continue
            properties.append(Property(name=name, nodes=nodes, required=name in flat.required))
        free = self._free(flat, bool(flat.having("properties")))
        if free is None and key_nodes:
            free = key_nodes
        if free is not None and flat.min_properties > len(flat.required):
            raise SchemaError(
                flat.path, "minProperties", "cannot be enforced where keys are free; list them in properties"
            )
        low = flat.min_properties
        keys = (without(names), *key_parts, *self._free_keys(flat)) if free is not None else ()
        return Object(
            properties=tuple(properties), free=free, low=low, high=flat.max_properties, key_parts=keys
        )

    def _key_rules(self, flat: Flat) -> tuple[tuple[Regex, ...], Nodes]:
        """What propertyNames demands of every key, and the schemas of the values of patternProperties."""
        parts: list[Regex] = []
        for node in flat.having("propertyNames"):
            names = merge([node.child("propertyNames")])
            plain = not set(node.schema["propertyNames"]) - {
                "type",
                "pattern",
                "format",
                "minLength",
                "maxLength",
            }
            if not isinstance(node.schema["propertyNames"], Mapping) or not plain:
                raise SchemaError(node.path, "propertyNames", "may hold pattern, format and lengths only")
            parts += self._scalars.string(names)
        found = [
            (node, p) for node in flat.having("patternProperties") for p in node.schema["patternProperties"]
        ]
        if len(found) > 1:
            raise SchemaError(found[1][0].path, "patternProperties", "is supported with one pattern only")
        return tuple(parts), tuple(node.child("patternProperties", p) for node, p in found)

    def _free_keys(self, flat: Flat) -> list[Regex]:
        found = [
            (node, p) for node in flat.having("patternProperties") for p in node.schema["patternProperties"]
        ]
        return [self._key_pattern(node, p) for node, p in found]

    def _key_pattern(self, node: Node, source: str) -> Regex:
        part = merge([Node(node.path, {"type": "string", "pattern": source})])
        try:
            return self._scalars.string(part)[0]
        except SchemaError as error:
            raise SchemaError(node.path, "patternProperties", str(error).partition("pattern ")[2]) from None

    def _property(self, flat: Flat, name: str) -> Nodes | None:
        """All demands on a property; None if one of them says that it must not be there."""
        found: list[Node] = []
        for node in flat.nodes:
            covered = False
            if name in node.schema.get("properties", ()):
                found.append(node.child("properties", name))
                covered = True
            for source in node.schema.get("patternProperties", ()):
                if self._rules.space.matches(self._key_pattern(node, source), name):
                    found.append(node.child("patternProperties", source))
                    covered = True
            if not covered and "additionalProperties" in node.schema:
                found.append(node.child("additionalProperties"))
        return None if any(node.schema is False for node in found) else tuple(found)

    def _free(self, flat: Flat, declared: bool) -> Nodes | None:
        """Demands on properties that nothing names; None where there are none.

        An object that lists its properties has no others, unless it says so: who lists them means these.
        """
        patterned = bool(flat.having("patternProperties"))
        nodes = [node.child("additionalProperties") for node in flat.having("additionalProperties")]
        if any(node.schema is False for node in nodes) or patterned:
            if patterned and any(node.schema is not False for node in nodes):
                raise SchemaError(
                    flat.path, "patternProperties", "is supported beside additionalProperties false only"
                )
            return None
        return tuple(nodes) if nodes or not declared else None


_PARTS: dict[str, Sequence[str]] = {
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
}


def _kind_of_word(word: str) -> str:
    return "null" if word == "null" else "boolean"


def _check_count(flat: Flat, **bounds: int | None) -> None:
    for keyword, bound in bounds.items():
        if bound is not None and bound > MAX_COUNT:
            raise SchemaError(flat.path, keyword, f"must be at most {MAX_COUNT}, got {bound}")


def _item(flat: Flat, index: int) -> Nodes:
    found = []
    for node in flat.nodes:
        prefix = node.schema.get("prefixItems", ())
        if index < len(prefix):
            found.append(node.child("prefixItems", index))
        elif "items" in node.schema:
            found.append(node.child("items"))
    return tuple(found)
