"""Schemas without references and alternatives: what several schemas demand together, keyword by keyword."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gossamer.grammar.errors import SchemaError

KINDS = ("null", "boolean", "number", "string", "array", "object")
OF_KIND: dict[str, tuple[str, ...]] = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
    ),
}
"""Keywords that say something about one kind of value only."""
JOINING = ("$ref", "allOf", "anyOf", "oneOf")
ANNOTATIONS = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "example",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "$defs",
        "definitions",
        "contentMediaType",
        "contentEncoding",
    )
)
_KNOWN = frozenset(
    (*ANNOTATIONS, *JOINING, "type", "enum", "const", "$id", *(k for ks in OF_KIND.values() for k in ks))
)


@dataclass(frozen=True)
class Node:
    """One schema and where it stands, as a JSON pointer from ``#``."""

    path: str
    schema: Any = field(compare=False)

    def child(self, *keys: str | int) -> Node:
        """The schema below these keys."""
        schema, path = self.schema, self.path
        for key in keys:
            schema = schema[key]
            path += "/" + str(key).replace("~", "~0").replace("/", "~1")
        return Node(path, schema)


@dataclass(kw_only=True)
class Flat:
    """What nodes demand together.

    Attributes:
        nodes: The schemas, for the keywords that nest others.
        kinds: Kinds of values that are allowed.
        integer: Whether numbers must be integers.
        values: The only values allowed, None for no such list.
        low: Least number and whether it is itself left out; ``high`` the greatest.
        multiples: Every number is a multiple of each.
        min_length: Characters of a string, ``max_length`` at most.
        patterns: ECMA expressions found in every string, with their nodes.
        formats: Names of formats, with their nodes.
        min_items: Of an array, and so on.
        required: Names of properties.
    """

    nodes: tuple[Node, ...]
    kinds: set[str] = field(default_factory=lambda: set(KINDS))
    integer: bool = False
    values: list[Any] | None = None
    low: tuple[Decimal, bool] | None = None
    high: tuple[Decimal, bool] | None = None
    multiples: list[tuple[Decimal, Node]] = field(default_factory=list)
    min_length: int = 0
    max_length: int | None = None
    patterns: list[tuple[str, Node]] = field(default_factory=list)
    formats: list[tuple[str, Node]] = field(default_factory=list)
    min_items: int = 0
    max_items: int | None = None
    min_properties: int = 0
    max_properties: int | None = None
    required: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Where to look when the whole is at fault."""
        return self.nodes[-1].path if self.nodes else "#"

    def having(self, keyword: str) -> list[Node]:
        """The nodes with a keyword."""
        return [node for node in self.nodes if keyword in node.schema]


def check_keywords(node: Node) -> None:
    """Refuse what is no schema, and keywords that are unknown or cannot be enforced.

    Raises:
        SchemaError: naming the first of them.
    """
    if isinstance(node.schema, bool):
        return
    if not isinstance(node.schema, Mapping):
        raise SchemaError(node.path, "", f"must be an object, true or false, got {node.schema!r:.80}")
    for keyword in node.schema:
        if keyword in _KNOWN or keyword.startswith("x-"):
            continue
        raise SchemaError(node.path, keyword, "is not supported: decoding cannot enforce it")
    if "$id" in node.schema and node.path != "#":
        raise SchemaError(node.path, "$id", "is supported at the top of a schema only")


def merge(nodes: Sequence[Node]) -> Flat:
    """What plain schemas demand together; joining keywords are the caller's.

    Raises:
        SchemaError: a malformed keyword.
    """
    flat = Flat(nodes=tuple(node for node in nodes if isinstance(node.schema, Mapping)))
    if any(node.schema is False for node in nodes):
        flat.kinds = set()
    for node in flat.nodes:
        _types(flat, node)
        for name, merger in _MERGERS.items():
            if name in node.schema:
                merger(flat, node, name)
    return flat


def _types(flat: Flat, node: Node) -> None:
    schema = node.schema
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        for name in names:
            if name not in (*KINDS, "integer"):
                raise SchemaError(node.path, "type", f"must name JSON types, got {name!r:.80}")
        if "integer" in names and "number" not in names:
            flat.integer = True
        flat.kinds &= {"number" if name == "integer" else name for name in names}
    elif "enum" not in schema and "const" not in schema and not any(k in schema for k in JOINING):
        # Without a type, other kinds would do as well; but who bounds a string's length means a string.
        meant = {kind for kind, keywords in OF_KIND.items() if any(k in schema for k in keywords)}
        if meant:
            flat.kinds &= meant


def _enum(flat: Flat, node: Node, name: str) -> None:
    values = node.schema[name]
    if name == "const":
        values = [values]
    elif not isinstance(values, list) or not values:
        raise SchemaError(node.path, name, "must be a non-empty array")
    known = flat.values
    flat.values = list(values) if known is None else [v for v in known if any(same(v, w) for w in values)]


def _bound(flat: Flat, node: Node, name: str) -> None:
    value = _decimal(node, name)
    is_open = name.startswith("exclusive")
    if name in ("minimum", "exclusiveMinimum"):
        if flat.low is None or (value, is_open) > flat.low:
            flat.low = (value, is_open)
    elif flat.high is None or (-value, is_open) > (-flat.high[0], flat.high[1]):
        flat.high = (value, is_open)


def _multiple(flat: Flat, node: Node, name: str) -> None:
    value = _decimal(node, name)
    if value <= 0:
        raise SchemaError(node.path, name, f"must be above 0, got {value}")
    flat.multiples.append((value, node))


def _count(flat: Flat, node: Node, name: str) -> None:
    value = node.schema[name]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SchemaError(node.path, name, f"must be an integer from 0, got {value!r:.80}")
    attribute = name[:3] + "_" + name[3:].lower()
    known = getattr(flat, attribute)
    if name.startswith("min"):
        setattr(flat, attribute, max(known, value))
    else:
        setattr(flat, attribute, value if known is None else min(known, value))


def _text(flat: Flat, node: Node, name: str) -> None:
    value = node.schema[name]
    if not isinstance(value, str):
        raise SchemaError(node.path, name, f"must be a string, got {value!r:.80}")
    (flat.patterns if name == "pattern" else flat.formats).append((value, node))


def _required(flat: Flat, node: Node, name: str) -> None:
    names = node.schema[name]
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise SchemaError(node.path, name, "must be an array of strings")
    flat.required += [n for n in dict.fromkeys(names) if n not in flat.required]


def _unique(flat: Flat, node: Node, name: str) -> None:
    if not isinstance(node.schema[name], bool):
        raise SchemaError(node.path, name, "must be true or false")


def _table(flat: Flat, node: Node, name: str) -> None:
    if not isinstance(node.schema[name], Mapping):
        raise SchemaError(node.path, name, "must be an object of schemas")


def _prefix(flat: Flat, node: Node, name: str) -> None:
    if not isinstance(node.schema[name], list):
        raise SchemaError(node.path, name, "must be an array of schemas")


def _schema(flat: Flat, node: Node, name: str) -> None:
    if isinstance(node.schema[name], list):
        raise SchemaError(node.path, name, "must be one schema; an array of them is prefixItems")


_MERGERS = {
    "enum": _enum,
    "const": _enum,
    "minimum": _bound,
    "maximum": _bound,
    "exclusiveMinimum": _bound,
    "exclusiveMaximum": _bound,
    "multipleOf": _multiple,
    "minLength": _count,
    "maxLength": _count,
    "minItems": _count,
    "maxItems": _count,
    "minProperties": _count,
    "maxProperties": _count,
    "pattern": _text,
    "format": _text,
    "required": _required,
    "uniqueItems": _unique,
    "properties": _table,
    "patternProperties": _table,
    "prefixItems": _prefix,
    "items": _schema,
}


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other


def kind_of(value: Any) -> str:
    """The kind of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "object" if isinstance(value, Mapping) else "array"


def _decimal(node: Node, name: str) -> Decimal:
    value = node.schema[name]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits:
        raise SchemaError(node.path, name, f"must be a number, got {value!r:.80}")
    return Decimal(value) if isinstance(value, int) else Decimal(repr(value))
