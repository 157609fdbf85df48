"""Dialogues that are mostly look-up: several tools, one message, a call of each of them.

A dialogue of every day holds one call in several hundred tokens, most of them schema, so the tokens that
choose where to copy from are rare.  Here one schema serves many calls, and a row of 1,024 tokens holds dozens
of such tokens, in the very surroundings that all other calls have.  No tool is called twice: its second call
could be copied from the first, without a look at the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gossamer.train.dialogue import offer, values
from gossamer.train.dialogue.saying import label, said, style
from gossamer.train.dialogue.scene import Dialogue, Scene
from gossamer.train.dialogue.schema import Task, Tool
from gossamer.train.dialogue.values import Draw

EFFORTS = ("low", "low", "low", "low", "high", "high", "max", None)
ORDERS = ("{}", "Call {}.", "Now {}", "{} please", "Use {}.", "Please run {}.", "I need {}.", "Do {}!")


class Lookups:
    """Look-up dialogues by number; the same arguments always give the same one.

    Args:
        seed: chooses the whole sequence.
        words: what names and values are made of.
        difficulty: of tools and values, 0 to 1.
    """

    def __init__(self, seed: int, words: Sequence[str] = values.WORDS, difficulty: float = 0.5):
        self.seed = seed
        self.words = words
        self.difficulty = difficulty

    def dialogue(self, index: int) -> Dialogue:
        """Dialogue number `index`."""
        rng = Draw(f"{self.seed}/lookup/{index}", self.words, self.difficulty)
        tools = [_short(rng, tool) for tool in offer.offers(rng, rng.choice((3, 4, 4, 5, 5, 6)), related=0.3)]
        effort = rng.choice(EFFORTS)
        return rng.choice((asked, told_first, told_first))(rng, effort, tools)


def asked(rng: Draw, effort: str | None, tools: Sequence[Tool]) -> Dialogue:
    """One request after another, each with its own values, all in one message."""
    scene = Scene(rng, effort, tools)
    wanted = rng.sample(list(tools), max(1, len(tools) - 1))
    tasks = [offer.task(rng, tool, tools) for tool in wanted]
    scene.user("\n".join([task.request for task in tasks]))
    scene.call(*tasks)
    return scene.dialogue("look-up")


def told_first(rng: Draw, effort: str | None, tools: Sequence[Tool]) -> Dialogue:
    """All values in one list; then some tools by name, each to be called with the values that are its own."""
    scene = Scene(rng, effort, tools)
    how = style(rng)
    joint = rng.choice((": ", " = ", " is ", "=", " -> "))
    known: dict[str, Any] = {}
    lines: dict[str, str] = {}
    ready: list[Tool] = []
    for tool in tools:
        own = [p for p in tool.parameters if p.required]
        # A name or label that two tools share would have two values.
        if own and not any(p.name in known or label(p, how) in lines for p in own):
            ready.append(tool)
            for p in own:
                known[p.name] = p.make(rng)
                lines[label(p, how)] = f"{label(p, how)}{joint}{said(known[p.name], how, alone=True)}"
    wanted = rng.sample(ready, max(1, len(ready) - rng.choice((0, 0, 1))))
    tasks = [Task(tool=tool, values={name: known[name] for name in tool.required}) for tool in wanted]
    called = [tool.name if rng.random() < 0.6 else tool.wish for tool in wanted]
    order = rng.choice(ORDERS).replace("{}", rng.choice((", ", " and ", ", then ")).join(called))
    told = rng.sample(list(lines.values()), len(lines))
    scene.user("\n".join([*told, order] if rng.random() < 0.7 else [order, *told]))
    scene.call(*tasks)
    return scene.dialogue("look-up, told first")


def _short(rng: Draw, tool: Tool) -> Tool:
    """The same with a shorter schema: hardly anything in it that no call needs."""
    kept = [p for p in tool.parameters if p.required or rng.random() < 0.2]
    # Where a description is the only place that says what a name means, it stays.
    told = [p if p.said[0] != p.name.replace("_", " ") else replace(p, about="") for p in kept]
    return replace(tool, parameters=tuple(told), about=tool.about if rng.random() < 0.3 else "", asks=())
