"""A tool as one dialogue offers it: names chosen, schema written, arguments drawn, request phrased."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gossamer.train.dialogue.tools import CONCEPTS, Concept, invented
from gossamer.train.dialogue.values import Draw

Rng = Draw
DESCRIPTIONS = ("The {}", "Name of the {}", "{} to use", "The {} of the request", "A {}", "Which {}")
SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One declared tool."""

    concept: Concept
    name: str
    about: str
    keys: dict[str, str]
    """Slot -> name of the argument in this schema."""
    describe: str = ""
    """Template of every argument's description; empty for none."""

    def schema(self) -> dict[str, Any]:
        """The tool as the OpenAI API takes it."""
        properties: dict[str, Any] = {}
        for parameter in self.concept.parameters:
            entry: dict[str, Any] = {"type": parameter.type}
            if parameter.enum:
                entry["enum"] = list(parameter.enum)
            if self.describe:
                entry["description"] = self.describe.replace("{}", parameter.slot.replace("_", " "))
            properties[self.keys[parameter.slot]] = entry
        required = [self.keys[p.slot] for p in self.concept.parameters if p.required]
        parameters: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
        function = {"name": self.name, "description": self.about, "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, kw_only=True)
class Task:
    """A request that one offered tool can serve."""

    offer: Offer
    values: dict[str, Any]
    """Slot -> value, only the slots that the request mentions."""
    request: str
    wish: str

    def arguments(self) -> dict[str, Any]:
        """Argument name -> value, in the order of the schema as the prompt shows it (sorted)."""
        named = {self.offer.keys[slot]: value for slot, value in self.values.items()}
        return dict(sorted(named.items()))

    def call(self, call_id: str) -> dict[str, Any]:
        """The tool call as the OpenAI API writes it."""
        arguments = json.dumps(self.arguments(), ensure_ascii=False)
        return {
            "id": call_id,
            "type": "function",
            "function": {"name": self.offer.name, "arguments": arguments},
        }


def offer(rng: Rng, concept: Concept) -> Offer:
    """Choose the names of one tool."""
    keys: dict[str, str] = {}
    for parameter in concept.parameters:
        free = [key for key in parameter.keys if key not in keys.values()]
        keys[parameter.slot] = rng.choice(free) if free else parameter.slot
    return Offer(
        concept=concept,
        name=rng.choice(concept.names),
        about=rng.choice(concept.about) + rng.choice(("", "", ".")),
        keys=keys,
        describe=rng.choice(DESCRIPTIONS) if rng.random() < 0.4 else "",
    )


def offers(rng: Rng, count: int) -> list[Offer]:
    """`count` tools with different names, about half of them invented."""
    chosen: dict[str, Offer] = {}
    while len(chosen) < count:
        concept = rng.choice(CONCEPTS) if rng.random() < 0.55 else invented(rng)
        if any(concept.names == other.concept.names for other in chosen.values()):
            continue
        made = offer(rng, concept)
        chosen.setdefault(made.name, made)
    return list(chosen.values())


def task(rng: Rng, chosen: Offer) -> Task:
    """Phrase a request for a tool and draw the values it mentions."""
    parameters = {p.slot: p for p in chosen.concept.parameters}
    ask = rng.choice(chosen.concept.asks)
    if "{pairs}" in ask:
        mentioned = [p for p in parameters.values() if p.required or rng.random() < 0.6]
        values = {p.slot: p.maker(rng) for p in mentioned}
        ask = ask.replace("{pairs}", _pairs(rng, chosen, values), 1)
        return Task(offer=chosen, values=values, request=ask, wish=_fill(chosen.concept.wish, values))
    mentioned = [parameters[slot] for slot in dict.fromkeys(SLOT.findall(ask))]
    values = {p.slot: p.maker(rng) for p in mentioned}
    values |= {p.slot: p.maker(rng) for p in parameters.values() if p.required and p.slot not in values}
    return Task(
        offer=chosen, values=values, request=_fill(ask, values), wish=_fill(chosen.concept.wish, values)
    )


def _pairs(rng: Rng, chosen: Offer, values: dict[str, Any]) -> str:
    form = rng.choice(("{k} {v}", "{k} = {v}", "{k}: {v}", "{k} set to {v}", "{v} as {k}"))
    quote = rng.random() < 0.3
    parts = []
    for slot, value in values.items():
        shown = f'"{value}"' if quote and isinstance(value, str) and '"' not in value else spoken(value)
        parts.append(form.replace("{k}", chosen.keys[slot]).replace("{v}", shown))
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + rng.choice((" and ", ", ")) + parts[-1]


def _fill(template: str, values: dict[str, Any]) -> str:
    return SLOT.sub(lambda m: spoken(values[m.group(1)]) if m.group(1) in values else m.group(0), template)


def fill(template: str, values: dict[str, Any]) -> str:
    """Replace `{slot}` by the spoken form of its value."""
    return _fill(template, values)


def spoken(value: Any) -> str:
    """A value as a person or the argument block writes it: strings raw, everything else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
