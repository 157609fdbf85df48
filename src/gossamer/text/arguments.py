"""Puts one call's typed arguments together as one JSON text, fragment by fragment.

String values are escaped and passed on while they arrive; other values wait for their end, because only
then is it known whether they are JSON or must be kept as text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gossamer.text import xtml

TYPES = ("string", "number", "boolean", "null", "object", "array")


class ArgumentWriter:
    """The arguments of one call. Every method returns the JSON text that is now certain.

    The fragments joined, `close` included, are one JSON object; only a raw block, in which the model wrote
    the whole object itself, is passed through as it is. If a call holds both, the first kind counts.

    Args:
        declared: parameter name -> the type its schema declares, for values without a usable type.
    """

    def __init__(self, declared: Mapping[str, str]):
        self._declared = declared
        self._mode: Literal["unknown", "typed", "raw"] = "unknown"
        self._value: Literal["none", "string", "json", "raw"] = "none"
        self._key = ""
        self._pending: list[str] = []
        self._num_values = 0
        self._raw_written = False

    def open_argument(self, key: str | None, kind: str | None) -> str:
        """Begin a value; one without a key, or after a raw block, is left out."""
        self._value = "none"
        if key is None or self._mode == "raw":
            return ""
        self._mode = "typed"
        if kind not in TYPES:
            kind = self._declared.get(key)
        self._key = key
        if kind == "string":
            self._value = "string"
            return self._label() + '"'
        self._value = "json"
        self._pending = []
        return ""

    def open_raw(self) -> str:
        """Begin a block that holds the whole object as JSON text."""
        self._value = "none"
        if self._mode == "unknown":
            self._mode = "raw"
            self._value = "raw"
        return ""

    def text(self, text: str) -> str:
        """Add text to the open value."""
        if self._value == "string":
            return json.dumps(text, ensure_ascii=False)[1:-1]
        if self._value == "json":
            self._pending.append(text)
        elif self._value == "raw":
            return self._raw_text(text)
        return ""

    def close_value(self, *, truncated: bool = False) -> str:
        """End the open value. A truncated one of which nothing arrived is left out."""
        value, self._value = self._value, "none"
        if value == "string":
            return '"'
        if value != "json":
            return ""
        raw = "".join(self._pending)
        self._pending = []
        if truncated and not raw.strip():
            return ""
        return self._label() + _json_or_text(raw)

    def close(self, *, truncated: bool = False) -> str:
        """End the call."""
        rest = self.close_value(truncated=truncated)
        if self._mode == "raw":
            return rest if self._raw_written else "{}"
        return rest + ("}" if self._num_values else "{}")

    def _raw_text(self, text: str) -> str:
        # Leading white space waits: a block of nothing else becomes an empty object.
        if self._raw_written:
            return text
        self._pending.append(text)
        if not text.strip():
            return ""
        self._raw_written = True
        held, self._pending = "".join(self._pending), []
        return held

    def _label(self) -> str:
        self._num_values += 1
        return ("{" if self._num_values == 1 else ", ") + json.dumps(self._key, ensure_ascii=False) + ": "


def declared_types(tools: Sequence[Mapping[str, Any]] | None) -> dict[str, dict[str, str]]:
    """Return tool name -> parameter name -> declared type, as far as the schemas say it plainly."""
    table: dict[str, dict[str, str]] = {}
    for tool in tools or ():
        function = tool.get("function")
        if not isinstance(function, Mapping):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        if isinstance(properties, Mapping):
            table[str(function.get("name"))] = {
                key: schema["type"]
                for key, schema in properties.items()
                if isinstance(schema, Mapping) and isinstance(schema.get("type"), str)
            }
    return table


def _json_or_text(raw: str) -> str:
    try:
        xtml.loads(raw)
    except ValueError:
        return json.dumps(raw, ensure_ascii=False)
    return raw.strip()
