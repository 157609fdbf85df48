"""Tool declarations, tool choice and response format of a request."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.schemas import check_schema

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def parse_tools(tree: Any, at: str, names: set[str]) -> tuple[Mapping[str, Any], ...]:
    """Validated tool declarations, kept whole because the model reads every key.

    Args:
        tree: The decoded ``tools`` value.
        at: Its path, named in errors.
        names: Function names declared elsewhere in the request; this adds its own.

    Raises:
        RequestError: a malformed declaration, a name used twice, or more than 128 tools in all.
    """
    if not isinstance(tree, list):
        raise invalid(at, "must be an array of tools")
    for position, tool in enumerate(tree):
        name = _tool_name(tool, f"{at}[{position}]")
        if name in names:
            raise invalid(f"{at}[{position}].function.name", f"{name!r} is declared twice")
        names.add(name)
    if len(names) > MAX_TOOLS:
        raise RequestError(f"at most {MAX_TOOLS} tools can be declared, got {len(names)}", param=at)
    return tuple(tree)


def _tool_name(tool: Any, at: str) -> str:
    if not isinstance(tool, dict):
        raise invalid(at, "must be an object")
    if tool.get("type") != "function":
        raise invalid(f"{at}.type", f"must be 'function', got {tool.get('type')!r:.80}")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise invalid(f"{at}.function", "must be an object")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{at}.function.name must be 1 to 64 letters, digits, '_' or '-' and begin with a letter or '_', "
            f"got {name!r:.80}",
            param=f"{at}.function.name",
        )
    if not isinstance(function.get("description") or "", str):
        raise invalid(f"{at}.function.description", "must be a string")
    if not isinstance(function.get("strict") or False, bool):
        raise invalid(f"{at}.function.strict", "must be true or false")
    parameters = function.get("parameters")
    if parameters is not None and not (
        isinstance(parameters, dict) and parameters.get("type", "object") == "object"
    ):
        raise invalid(f"{at}.function.parameters", "must be a JSON Schema whose type is object")
    if parameters is not None:
        check_schema(parameters, f"{at}.function.parameters")
    return name


def parse_tool_choice(tree: Any, has_tools: bool) -> str:
    """``auto``, ``none`` or ``required``; an object that names a function requires a call of it.

    Raises:
        RequestError: anything else, or ``required`` without a tool.
    """
    if tree is None:
        return "auto"
    if isinstance(tree, dict):
        return "required"
    if tree not in ("auto", "none", "required"):
        raise invalid("tool_choice", f"must be auto, none or required, got {tree!r:.80}")
    if tree == "required" and not has_tools:
        raise invalid("tool_choice", "'required' needs at least one tool")
    return tree


def parse_named_tool(tree: Any, names: Collection[str]) -> str | None:
    """The one function that ``tool_choice`` names, None where it names none.

    Raises:
        RequestError: a malformed object, or a function that is not declared.
    """
    if not isinstance(tree, dict):
        return None
    function = tree.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if tree.get("type") != "function" or not isinstance(name, str):
        raise invalid(
            "tool_choice", 'must name a function as {"type": "function", "function": {"name": "f"}}'
        )
    if name not in names:
        raise invalid("tool_choice.function.name", f"{name!r:.80} is not among the declared tools")
    return name


def parse_response_format(tree: Any) -> Mapping[str, Any] | None:
    """The response format, None for plain text.

    Raises:
        RequestError: an unknown type, or a ``json_schema`` without name or schema.
    """
    if tree is None:
        return None
    if not isinstance(tree, dict):
        raise invalid("response_format", "must be an object")
    kind = tree.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return tree
    if kind != "json_schema":
        raise invalid("response_format.type", f"must be text, json_object or json_schema, got {kind!r:.80}")
    at = "response_format.json_schema"
    spec = tree.get("json_schema")
    if not isinstance(spec, dict):
        raise invalid(at, "must be an object")
    if not isinstance(spec.get("name"), str) or not spec["name"]:
        raise invalid(f"{at}.name", "must be a non-empty string")
    if not isinstance(spec.get("schema"), dict):
        raise invalid(f"{at}.schema", "must be an object")
    if not isinstance(spec.get("strict", True), bool):
        raise invalid(f"{at}.strict", "must be true or false")
    return tree
