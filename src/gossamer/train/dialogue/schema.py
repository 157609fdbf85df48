"""A tool as one dialogue offers it, and a call of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gossamer.train.dialogue.values import Draw, Maker


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One argument a tool takes."""

    name: str
    type: str
    make: Maker
    said: tuple[str, ...]
    """What a person may call it instead of its name."""
    forms: tuple[str, ...] = ()
    """Ways to put it into a sentence: `{v}` is the value, `{l}` the label."""
    required: bool = True
    enum: tuple[str, ...] = ()
    items: str = ""
    """Type of an array's items, when the schema tells it."""
    about: str = ""

    def schema(self) -> dict[str, Any]:
        """Its entry under `properties`."""
        entry: dict[str, Any] = {"type": self.type}
        if self.enum:
            entry["enum"] = list(self.enum)
        if self.items:
            entry["items"] = {"type": self.items}
        if self.about:
            entry["description"] = self.about
        return entry


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One declared tool with the ways to ask for it."""

    name: str
    about: str
    wish: str
    """What it does, as an order: verb and object. May hold `{name}` of a parameter."""
    parameters: tuple[Parameter, ...]
    asks: tuple[str, ...] = ()
    """Requests of its own; `{name}` stands for a value."""
    results: tuple[tuple[str, Maker], ...] = ()
    answers: tuple[str, ...] = ()
    outcome: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """The true result of the arguments, where it is not a matter of chance."""
    group: str = ""
    """Tools of one group do the same and are never offered together."""

    def schema(self) -> dict[str, Any]:
        """The tool as the OpenAI API takes it."""
        properties = {p.name: p.schema() for p in self.parameters}
        parameters: dict[str, Any] = {"type": "object", "properties": properties}
        parameters["required"] = list(self.required)
        function: dict[str, Any] = {"name": self.name, "parameters": parameters}
        if self.about:
            function["description"] = self.about
        return {"type": "function", "function": function}

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the required parameters, as the schema lists them."""
        return tuple(p.name for p in self.parameters if p.required)

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name."""
        return next(p for p in self.parameters if p.name == name)

    def draw(self, rng: Draw) -> dict[str, Any]:
        """Values for all required arguments and some of the others, in the order in which they are told."""
        given = [p for p in self.parameters if p.required or rng.random() < 0.6] or [self.parameters[0]]
        rng.shuffle(given)
        return {p.name: p.make(rng) for p in given}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A request with the call that serves it."""

    tool: Tool
    values: dict[str, Any]
    request: str = ""
    family: str = field(default="", compare=False)
    """Which way of asking was taken."""

    def arguments(self) -> dict[str, Any]:
        """Argument name -> value: the required ones as the schema lists them, then the others as told.

        The schema's list says what comes next, and where the required ones end; in the order of the request
        it would follow from wherever the last value stood there, which nano did not learn.
        """
        required = [name for name in self.tool.required if name in self.values]
        others = [name for name in self.values if name not in required]
        return {name: self.values[name] for name in (*required, *others)}

    def call(self, call_id: str) -> dict[str, Any]:
        """The tool call as the OpenAI API writes it."""
        arguments = json.dumps(self.arguments(), ensure_ascii=False)
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": self.tool.name, "arguments": arguments},
        }


def spoken(value: Any) -> str:
    """A value as the argument block writes it: strings raw, everything else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def fill(template: str, values: dict[str, Any]) -> str:
    """Replace each `{name}` of a value by its spoken form; other braces stay."""
    parts = template.split("{")
    made = [parts[0]]
    for part in parts[1:]:
        name, brace, rest = part.partition("}")
        made.append(spoken(values[name]) + rest if brace and name in values else "{" + part)
    return "".join(made)
