"""Checks of single JSON values, each naming the path, what was sent and what would do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gossamer.protocol.errors import RequestError, invalid


def kind_of(value: Any) -> str:
    """What a JSON value is, in words: ``an object``, ``a number``, ``null``."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def boolean(tree: Mapping[str, Any], key: str, default: bool, *, at: str = "") -> bool:
    """``tree[key]``, ``default`` where absent or null.

    Raises:
        RequestError: anything but true or false.
    """
    value = tree.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(at + key, f"must be true or false, got {value!r:.80}")
    return value


def integer(tree: Mapping[str, Any], key: str, low: int, high: int) -> int | None:
    """``tree[key]`` within ``low`` to ``high``, None where absent or null.

    Raises:
        RequestError: another type, or outside the range.
    """
    value = tree.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(key, f"must be an integer from {low} to {high}, got {value!r:.80}")
    return value


def number(tree: Mapping[str, Any], key: str, low: float, high: float, default: float) -> float:
    """``tree[key]`` within ``low`` to ``high``, ``default`` where absent or null.

    Raises:
        RequestError: another type, or outside the range.
    """
    value = tree.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(key, f"must be a number from {low:g} to {high:g}, got {value!r:.80}")
    return float(value)


def optional_string(tree: Mapping[str, Any], key: str, at: str) -> str | None:
    """``tree[key]``, None where absent or null.

    Raises:
        RequestError: another type.
    """
    value = tree.get(key)
    if value is not None and not isinstance(value, str):
        raise invalid(f"{at}.{key}", f"must be a string, got {kind_of(value)}")
    return value


def string(tree: Mapping[str, Any], key: str, at: str) -> str:
    """``tree[key]``, which may be empty but not absent.

    Raises:
        RequestError: absent, null or another type.
    """
    value = tree.get(key)
    if not isinstance(value, str):
        raise invalid(
            f"{at}.{key}", "is missing" if value is None else f"must be a string, got {kind_of(value)}"
        )
    return value


def name_of(tree: Mapping[str, Any], key: str, at: str) -> str:
    """``tree[key]`` as a string that is not empty.

    Raises:
        RequestError: absent, empty or another type.
    """
    value = tree.get(key)
    if not isinstance(value, str) or not value:
        raise invalid(f"{at}.{key}", "must be a non-empty string")
    return value


def mapping(tree: Any, at: str) -> dict[str, Any]:
    """``tree`` itself, an object.

    Raises:
        RequestError: another type.
    """
    if not isinstance(tree, dict):
        raise invalid(at, f"must be an object, got {kind_of(tree)}")
    return tree


def only_keys(tree: Mapping[str, Any], known: Collection[str], at: str, owner: str) -> None:
    """Refuse keys outside ``known``, so that nothing is dropped silently; a null key is an absent one.

    Raises:
        RequestError: naming the first such key, its place, and ``owner``: what it is no field of.
    """
    for key, value in tree.items():
        if key not in known and value is not None:
            raise RequestError(
                f"{at}.{key} is not a field of {owner}", param=f"{at}.{key}", code="unknown_parameter"
            )
