"""One seeded dialogue after another, as OpenAI-shaped messages with the tools they were offered."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gossamer.text.chat import Rendered, render
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.dialogue import offer as offering
from gossamer.train.dialogue import talk
from gossamer.train.dialogue.offer import Offer, Task
from gossamer.train.dialogue.talk import Turn
from gossamer.train.dialogue.values import Draw

Rng = Draw
EFFORTS = ("low", "high", "max")
SYSTEMS = (
    "You are a helpful assistant.",
    "You are nano, a small test model.",
    "Answer in one sentence.",
    "Use the tools when they fit.",
    "You help with daily tasks.",
)
GLOSSARY = (("test", "a procedure to find out whether something works"),)


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """Messages, tools and effort of one conversation."""

    family: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    effort: str | None = "max"

    def render(self, tokenizer: Tokenizer) -> Rendered:
        """The whole conversation as ids with the model's own part flagged."""
        return render(
            self.messages,
            tokenizer=tokenizer,
            tools=self.tools or None,
            reasoning_effort=self.effort,
            add_generation_prompt=False,
        )


class Generator:
    """Makes dialogue number `index` of a seed; the same two numbers always give the same dialogue.

    Args:
        seed: chooses the whole sequence; held-out sets use another one.
        glossary: words with meanings for definitions.
        drill_share: dialogues that only repeat a longer text, so that copying is learned early.
    """

    def __init__(self, seed: int, glossary: list[tuple[str, str]] | None = None, drill_share: float = 0.0):
        self.seed = seed
        self.drill_share = drill_share
        self.glossary = glossary or list(GLOSSARY)

    def dialogue(self, index: int) -> Dialogue:
        """Dialogue number `index`."""
        rng = Draw(f"{self.seed}/{index}")
        if self.drill_share and rng.random() < self.drill_share:
            return Dialogue(family="drill", messages=_talk_turns([talk.drill(rng)], None), effort=None)
        effort = rng.choice((*EFFORTS, "max", None))
        kind = rng.random()
        if kind < 0.62:
            return self._with_calls(rng, effort)
        if kind < 0.72:
            return self._offered_but_unused(rng, effort)
        return self._talk(rng, effort)

    def _with_calls(self, rng: Rng, effort: str | None) -> Dialogue:
        offered = offering.offers(rng, rng.choice((1, 1, 1, 2, 2, 3)))
        chosen = rng.choice(offered)
        tasks = [offering.task(rng, chosen)]
        request = tasks[0].request
        if rng.random() < 0.12:
            tasks.append(offering.task(rng, rng.choice(offered)))
            request = f"{request} {rng.choice(('Then', 'Also:', 'And'))} {tasks[1].request}"
        messages = _system(rng)
        messages.append({"role": "user", "content": request})
        messages.append(_call_turn(tasks, offered, effort, first_id=0))
        family = "call" if len(tasks) == 1 else "calls"
        if rng.random() < 0.5:
            family += "+result"
            messages += _result_turns(rng, tasks, effort)
            if rng.random() < 0.3:
                family += "+again"
                again = offering.task(rng, rng.choice(offered))
                messages.append({"role": "user", "content": again.request})
                messages.append(_call_turn([again], offered, effort, first_id=len(tasks)))
        return Dialogue(family=family, messages=messages, tools=[o.schema() for o in offered], effort=effort)

    def _offered_but_unused(self, rng: Rng, effort: str | None) -> Dialogue:
        offered = offering.offers(rng, rng.choice((1, 2)))
        about = " ".join(o.about.lower() for o in offered)
        turn = talk.unknown(rng) if rng.random() < 0.4 else self._turn(rng)
        for word in ("weather", "time", "contact", "price", "person"):
            # A tool that might answer the question makes "no tool fits" a lie.
            if word in turn.user.lower() and (word in about or word in ("person", "contact")):
                turn = talk.small_talk(rng)
        messages = [*_system(rng), *_talk_turns([turn], effort)]
        return Dialogue(
            family="unused tools", messages=messages, tools=[o.schema() for o in offered], effort=effort
        )

    def _talk(self, rng: Rng, effort: str | None) -> Dialogue:
        if rng.random() < 0.12:
            turns = list(talk.remembered(rng))
        else:
            turns = [self._turn(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        return Dialogue(family="talk", messages=[*_system(rng), *_talk_turns(turns, effort)], effort=effort)

    def _turn(self, rng: Rng) -> Turn:
        kind = rng.random()
        if kind < 0.45:
            return talk.copying(rng)
        if kind < 0.58:
            return talk.small_talk(rng)
        if kind < 0.68:
            return talk.arithmetic(rng)
        if kind < 0.80:
            return talk.definition(rng, self.glossary)
        if kind < 0.92:
            return talk.transform(rng)
        return talk.unknown(rng)


def _system(rng: Rng) -> list[dict[str, Any]]:
    return [{"role": "system", "content": rng.choice(SYSTEMS)}] if rng.random() < 0.2 else []


def _talk_turns(turns: list[Turn], effort: str | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn.user})
        messages.append(
            {
                "role": "assistant",
                "reasoning_content": _thoughts(turn.short, turn.steps, effort),
                "content": turn.answer,
            }
        )
    return messages


def _thoughts(short: str, steps: tuple[str, ...], effort: str | None) -> str:
    """More steps with more effort; without a stated effort the model thinks as for max."""
    if effort == "low":
        return short
    if effort == "high":
        return "\n".join((steps[0], short))
    return "\n".join((steps[0], short, *steps[1:]))


def _call_turn(tasks: list[Task], offered: list[Offer], effort: str | None, first_id: int) -> dict[str, Any]:
    calls = [task.call(f"call_{first_id + i}") for i, task in enumerate(tasks)]
    return {
        "role": "assistant",
        "reasoning_content": _call_thoughts(tasks, offered, effort),
        "content": "",
        "tool_calls": calls,
    }


def _call_thoughts(tasks: list[Task], offered: list[Offer], effort: str | None) -> str:
    names = ", ".join(task.offer.name for task in tasks)
    if effort == "low":
        return f"I call {names}."
    lines = [f"The user wants {' and '.join(task.wish for task in tasks)}."]
    if effort != "high":
        lines.append("Tools: " + ", ".join(o.name for o in offered) + ".")
    for task in tasks:
        lines.append(f"I call {task.offer.name}.")
        if effort != "high":
            shown = [f"{key} = {offering.spoken(value)}" for key, value in task.arguments().items()]
            lines += ["Arguments:", *shown]
    return "\n".join(lines)


def _result_turns(rng: Rng, tasks: list[Task], effort: str | None) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    answers: list[str] = []
    failed = rng.random() < 0.1
    for position, task in enumerate(tasks):
        outcome = {name: maker(rng) for name, maker in task.offer.concept.result}
        if task.offer.concept.outcome is not None:
            outcome = task.offer.concept.outcome(task.values)
        content = json.dumps(outcome, ensure_ascii=False)
        if failed:
            reason = rng.choice(("not found", "timeout", "permission denied", "service unavailable"))
            content = json.dumps({"error": reason})
            answers.append(f"{task.offer.name} failed: {reason}.")
        else:
            answers.append(offering.fill(rng.choice(task.offer.concept.answers), task.values | outcome))
        messages.append({"role": "tool", "tool_call_id": f"call_{position}", "content": content})
    short = "The tool failed. I say so." if failed else "The tool gave the result. I answer."
    steps = (f"{tasks[0].offer.name} has answered.", "I use only what the tool said.")
    thoughts = _thoughts(short, steps, effort)
    messages.append({"role": "assistant", "reasoning_content": thoughts, "content": " ".join(answers)})
    return messages
