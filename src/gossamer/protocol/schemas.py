"""Whether a value has the shape of a JSON Schema; what a schema means is not decided here."""

from __future__ import annotations

from typing import Any

from gossamer.protocol.errors import invalid
from gossamer.protocol.values import kind_of

_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE_SCHEMA = (
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
    "unevaluatedItems",
)
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")


def check_schema(tree: Any, at: str) -> None:
    """Check the keywords that hold other schemas, names or types, however deep; others may hold anything.

    Raises:
        RequestError: naming the place whose value no schema can have.
    """
    waiting = [(tree, at)]
    while waiting:
        schema, spot = waiting.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise invalid(spot, f"must be a JSON Schema, an object, got {kind_of(schema)}")
        _check_names(schema, spot)
        for key in _OF_SCHEMAS:
            if schema.get(key) is not None:
                waiting += [(inner, f"{spot}.{key}.{name}") for name, inner in _object(schema, key, spot)]
        waiting += [(schema[key], f"{spot}.{key}") for key in _ONE_SCHEMA if schema.get(key) is not None]
        for key in (*_SEVERAL, "items"):
            inner = schema.get(key)
            if key == "items" and inner is not None and not isinstance(inner, list):
                waiting.append((inner, f"{spot}.items"))
            elif inner is not None:
                waiting += [(one, f"{spot}.{key}[{i}]") for i, one in enumerate(_array(schema, key, spot))]


def _check_names(schema: dict[str, Any], at: str) -> None:
    kinds = schema.get("type")
    if kinds is not None and not _is_name_or_names(kinds):
        raise invalid(f"{at}.type", f"must be the name of a type, or an array of them, got {kinds!r:.80}")
    required = schema.get("required")
    if required is not None and not (isinstance(required, list) and _is_name_or_names(required or "")):
        raise invalid(f"{at}.required", f"must be an array of names, got {required!r:.80}")
    if schema.get("enum") is not None:
        _array(schema, "enum", at)


def _is_name_or_names(value: Any) -> bool:
    names = value if isinstance(value, list) and value else [value]
    return all(isinstance(name, str) for name in names)


def _object(schema: dict[str, Any], key: str, at: str) -> list[tuple[str, Any]]:
    if not isinstance(schema[key], dict):
        raise invalid(f"{at}.{key}", f"must be an object of schemas, got {kind_of(schema[key])}")
    return list(schema[key].items())


def _array(schema: dict[str, Any], key: str, at: str) -> list[Any]:
    if not isinstance(schema[key], list):
        raise invalid(f"{at}.{key}", f"must be an array, got {kind_of(schema[key])}")
    return schema[key]
