"""The tools of one dialogue and requests for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.train.dialogue import invent, phrase, values
from gossamer.train.dialogue.schema import Parameter, Task, Tool, fill
from gossamer.train.dialogue.tools import CONCEPTS, Concept
from gossamer.train.dialogue.values import Draw

EVERYDAY_SHARE = 0.06
OWN_ASK_SHARE = 0.6
"""How often an everyday tool is asked for with a sentence of its own."""


def everyday(rng: Draw, concept: Concept) -> Tool:
    """Choose the names of a tool of the catalogue."""
    keys: dict[str, str] = {}
    for slot in concept.parameters:
        free = [key for key in slot.keys if key not in keys.values()]
        keys[slot.slot] = rng.choice(free) if free else slot.slot
    describe = rng.choice(invent.ABOUT_FORMS) if rng.random() < 0.4 else ""
    parameters = tuple(
        Parameter(
            name=keys[slot.slot],
            type=slot.type,
            make=slot.maker,
            said=(keys[slot.slot].replace("_", " "),),
            forms=invent.COUNT_FORMS if slot.type in ("integer", "number") else invent.TEXT_FORMS,
            required=slot.required,
            enum=slot.enum,
            about=describe.replace("{}", slot.slot.replace("_", " ")),
        )
        for slot in concept.parameters
    )
    # Templates speak of slots; tools speak of argument names.
    names = {slot: "{" + key + "}" for slot, key in keys.items()}
    order = concept.about[0]
    return Tool(
        name=rng.choice(concept.names),
        about=rng.choice(concept.about) + rng.choice(("", "", ".")),
        wish=order[0].lower() + order[1:],
        parameters=parameters,
        asks=tuple(fill(ask, names) for ask in concept.asks),
        results=concept.result,
        answers=tuple(fill(answer, names) for answer in concept.answers),
        outcome=None if concept.outcome is None else _renamed(concept, keys),
        group=concept.names[0],
    )


def _renamed(concept: Concept, keys: dict[str, str]):
    slots = {key: slot for slot, key in keys.items()}
    return lambda given: concept.outcome({slots[key]: value for key, value in given.items()})  # pyrefly: ignore


def one(rng: Draw, like: Tool | None = None) -> Tool:
    """One tool, mostly an invented one."""
    if like is None and rng.random() < EVERYDAY_SHARE:
        return everyday(rng, rng.choice(CONCEPTS))
    return invent.tool(rng, like)


def offers(rng: Draw, count: int, *, related: float = 0.4) -> list[Tool]:
    """`count` tools with different names; a share of the further ones has a word in common with the first."""
    chosen: dict[str, Tool] = {}
    groups: set[str] = set()
    first: Tool | None = None
    while len(chosen) < count:
        made = one(rng, first if first is not None and rng.random() < related else None)
        if made.group in groups or made.name in chosen:
            continue
        first = first or made
        chosen[made.name] = made
        groups.add(made.group)
    return list(chosen.values())


def task(rng: Draw, tool: Tool, others: Sequence[Tool] = ()) -> Task:
    """Draw the arguments of a call and ask for it.

    Args:
        rng: source of all choices.
        tool: the tool to ask for.
        others: all tools on offer.
    """
    if tool.asks and rng.random() < OWN_ASK_SHARE:
        ask = rng.choice(tool.asks)
        named = [p for p in tool.parameters if "{" + p.name + "}" in ask]
        if all(p in named for p in tool.parameters if p.required):
            named.sort(key=lambda p: ask.index("{" + p.name + "}"))
            given = {p.name: p.make(rng) for p in named}
            return Task(tool=tool, values=given, request=fill(ask, given), family="own")
    given = tool.draw(rng)
    family, request = phrase.request(rng, tool, given, [other for other in others if other is not tool])
    return Task(tool=tool, values=given, request=request, family=family)


def outcome(rng: Draw, task: Task) -> dict[str, Any]:
    """What the tool gives back for a call."""
    if task.tool.outcome is not None:
        return task.tool.outcome(task.values)
    return {name: make(rng) for name, make in task.tool.results} or {values.name(rng): values.identifier(rng)}
