"""One tool with the arguments a question wants, and the schema that is shown for it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from gossamer.exam import values
from gossamer.exam.catalogue import FAMILIES, INVENTED_VERBS, OBJECT_FIELD_TYPE, Parameter, Tool
from gossamer.exam.words import WordSource, invented

Rng = random.Random
INVENTED_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One wanted argument.

    Attributes:
        parameter: what it is for.
        value: as JSON.
        value_kind: what makes it hard to copy; a string kind, or the parameter's own kind.
        spoken: said instead of the value where the value stands elsewhere ("the docket of the result").
    """

    parameter: Parameter
    value: Any
    value_kind: str
    spoken: str = ""

    @property
    def name(self) -> str:
        """The parameter's name."""
        return self.parameter.name


@dataclass(frozen=True, kw_only=True)
class Task:
    """A wanted call.  `shown` are the parameters of its schema: the wanted ones and perhaps optional ones."""

    tool: Tool
    arguments: tuple[Argument, ...]
    shown: tuple[Parameter, ...]
    item_types: dict[str, str] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        """Parameter name -> value."""
        return {argument.name: argument.value for argument in self.arguments}

    def schema(self) -> dict[str, Any]:
        """The declaration; what the question leaves out is optional in it."""
        return declare(self.tool, self.shown, {a.name for a in self.arguments}, self.item_types)


def declare(
    tool: Tool, shown: tuple[Parameter, ...], required: set[str], item_types: dict[str, str]
) -> dict[str, Any]:
    """A tool in the shape of the OpenAI API."""
    properties = {p.name: _schema(p, item_types.get(p.name, "string")) for p in shown}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [p.name for p in shown if p.name in required],
    }
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.about, "parameters": parameters},
    }


def _schema(parameter: Parameter, item_type: str) -> dict[str, Any]:
    about = parameter.about[0].upper() + parameter.about[1:]
    if parameter.kind == "enum":
        return {"type": "string", "enum": list(parameter.choices), "description": about}
    if parameter.kind == "array":
        return {"type": "array", "items": {"type": item_type}, "description": about}
    if parameter.kind == "object":
        fields = {name: {"type": OBJECT_FIELD_TYPE} for name in parameter.choices}
        return {"type": "object", "properties": fields, "description": about}
    return {"type": parameter.kind, "description": about}


def make(
    rng: Rng,
    words: WordSource,
    tool: Tool,
    num_arguments: int,
    *,
    string_kinds: tuple[str, ...] = values.STRING_KINDS,
    first: str = "",
) -> Task:
    """Draw arguments for a tool.

    Args:
        rng: decides.
        words: of the values.
        tool: to call.
        num_arguments: wanted; fewer where the tool has fewer parameters.
        string_kinds: kinds of value that the notation of the request can hold.
        first: kind of a parameter that must be among them, such as "string".
    """
    pool = list(tool.parameters)
    rng.shuffle(pool)
    if first:
        pool.sort(key=lambda p: p.kind != first)
    wanted, rest = pool[:num_arguments], pool[num_arguments:]
    types: dict[str, str] = {}
    arguments = [argument(rng, words, p, string_kinds, types) for p in wanted]
    rng.shuffle(arguments)
    shown = [*wanted, *(rest[:1] if rng.random() < 0.3 else [])]
    rng.shuffle(shown)
    return Task(tool=tool, arguments=tuple(arguments), shown=tuple(shown), item_types=types)


def argument(
    rng: Rng, words: WordSource, parameter: Parameter, string_kinds: tuple[str, ...], types: dict[str, str]
) -> Argument:
    """A value for one parameter; an array's item type is noted in `types`."""
    kind, value_kind = parameter.kind, parameter.kind
    value: Any
    if kind == "string":
        value_kind = rng.choice(string_kinds)
        value = values.string(value_kind, rng, words)
    elif kind == "number":
        value = values.number(rng)
    elif kind == "integer":
        value = values.integer(rng)
    elif kind == "boolean":
        value = rng.random() < 0.5
    elif kind == "enum":
        value = rng.choice(parameter.choices)
    elif kind == "array":
        types[parameter.name], value = values.array(rng, words)
    else:
        value = {name: rng.randint(0, 400) for name in parameter.choices}
    return Argument(parameter=parameter, value=value, value_kind=value_kind)


def any_tool(rng: Rng, words: WordSource) -> Tool:
    """A tool of the catalogue, or one that is made up now."""
    if rng.random() < INVENTED_SHARE:
        return invented_tool(rng, words)
    return rng.choice(FAMILIES[rng.choice(sorted(FAMILIES))])


def invented_tool(rng: Rng, words: WordSource) -> Tool:
    """A tool nobody has seen: its name, its parameters and what they are about are drawn words."""
    verb, thing = rng.choice(INVENTED_VERBS), words.draw(rng)
    kinds = rng.sample(("string", "string", "integer", "number", "boolean", "enum", "array"), 4)
    parameters, used = [], {thing}
    for kind in kinds:
        noun = words.draw(rng)
        while noun in used:
            noun = invented(rng)
        used.add(noun)
        name = noun if rng.random() < 0.5 else f"{noun}_{rng.choice(('mark', 'rate', 'part'))}"
        about = f"{name.replace('_', ' ')} of the {thing}"
        choices = tuple(words.draw(rng) for _ in range(3)) if kind == "enum" else ()
        parameters.append(Parameter(name=name, kind=kind, about=about, choices=choices))
    return Tool(
        name=f"{verb}_{thing}",
        about=f"{verb.capitalize()} the {thing}.",
        acts=(f"{verb} the {thing}",),
        parameters=tuple(parameters),
    )


def distractors(rng: Rng, words: WordSource, taken: list[Tool], number: int) -> list[dict[str, Any]]:
    """Declarations of other tools; the first is of the same family as the wanted tool where there is one."""
    names = {tool.name for tool in taken}
    chosen: list[Tool] = []
    family = next((tools for tools in FAMILIES.values() if taken and taken[0] in tools), ())
    siblings = [tool for tool in family if tool.name not in names]
    if siblings and number and rng.random() < 0.6:
        chosen.append(rng.choice(siblings))
    while len(chosen) < number:
        tool = any_tool(rng, words)
        if tool.name not in names | {c.name for c in chosen}:
            chosen.append(tool)
    found = []
    for tool in chosen:
        task = make(rng, words, tool, rng.choice((1, 1, 2, 2)))
        found.append(task.schema())
    return found


def call(task: Task, call_id: str) -> dict[str, Any]:
    """The call as a message holds it."""
    arguments = json.dumps(task.values, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": task.tool.name, "arguments": arguments}}
