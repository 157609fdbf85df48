"""Writes a conversation turn by turn: messages, calls with their thoughts, results, answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.text.chat import Rendered, render
from gossamer.text.tokenizer import Tokenizer
from gossamer.text.xtml import compact_json
from gossamer.train.dialogue import values
from gossamer.train.dialogue.schema import Task, Tool, fill, spoken
from gossamer.train.dialogue.values import Draw

SLOT = re.compile(r"\{(\w+)\}")
EFFORTS = ("low", "high", "max")
SYSTEMS = (
    "You are a helpful assistant.",
    "You are nano, a small test model.",
    "Use the tools when they fit.",
    "You help with daily tasks.",
)


@dataclass(frozen=True, kw_only=True)
class Dialogue:
    """Messages, tools and effort of one conversation."""

    family: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    effort: str | None = "max"
    asked: str = ""
    """Which way of asking the first request takes."""
    num_given: int = 0
    """How many of the first assistant turns are history only: nothing of them is a target."""

    def render(self, tokenizer: Tokenizer) -> Rendered:
        """The whole conversation as ids with the model's own part flagged."""
        made = render(
            self.messages,
            tokenizer=tokenizer,
            tools=self.tools or None,
            reasoning_effort=self.effort,
            add_generation_prompt=False,
        )
        return _forgiven(made, self.num_given) if self.num_given else made


def _forgiven(made: Rendered, num_turns: int) -> Rendered:
    """Take the flags from the first assistant turns."""
    segments = []
    turn, before = 0, False
    for segment in made.segments:
        turn += segment.generated and not before
        before = segment.generated
        flagged = segment.generated and turn > num_turns
        # Rebuilt by hand: dataclasses.replace is slow, and this runs while the model trains.
        same = flagged == segment.generated
        segments.append(
            segment
            if same
            else type(segment)(text=segment.text, ids=segment.ids, control=segment.control, generated=False)
        )
    return Rendered(ids=made.ids, segments=tuple(segments), start=made.start, media=made.media)


class Scene:
    """A conversation in the making.

    Args:
        rng: source of all choices.
        effort: low, high, max, or None, which the model takes for max.
        tools: the tools on offer.
    """

    def __init__(self, rng: Draw, effort: str | None, tools: Sequence[Tool] = ()):
        self.rng = rng
        self.effort = effort
        self.tools = list(tools)
        rng.shuffle(self.tools)
        self.messages: list[dict[str, Any]] = []
        self._num_calls = 0
        if rng.random() < 0.12:
            system = rng.choice(SYSTEMS) if rng.random() < 0.5 else f"You work for {values.phrase(rng)}."
            self.messages.append({"role": "system", "content": system})

    def user(self, text: str) -> None:
        """The user says something."""
        self.messages.append({"role": "user", "content": text})

    def call(self, *tasks: Task, note: str = "") -> None:
        """The assistant calls tools.

        Args:
            tasks: the calls, in order.
            note: what it decides on the way; later turns may need it.
        """
        thoughts = call_thoughts(tasks, self.effort)
        calls = [task.call(f"call_{self._num_calls + i}") for i, task in enumerate(tasks)]
        self._num_calls += len(calls)
        self.messages.append(
            {
                "role": "assistant",
                "reasoning_content": f"{note}\n{thoughts}" if note else thoughts,
                "content": "",
                "tool_calls": calls,
            }
        )

    def results(self, *contents: str) -> None:
        """The tools of the last call answer."""
        calls = self.messages[-1]["tool_calls"]
        for call, content in zip(calls, contents, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    def say(self, content: str, thought: str, *more: str, note: str = "") -> None:
        """The assistant answers in words.

        Args:
            content: the answer.
            thought: the one thought of low effort.
            more: one further thought for high effort, then others for the highest.
            note: what it decides on the way; later turns may need it.
        """
        kept = more[:1] if self.effort == "high" else more if self.effort != "low" else ()
        lines = [line for line in (note, *kept[:1], thought, *kept[1:]) if line]
        self.messages.append({"role": "assistant", "reasoning_content": "\n".join(lines), "content": content})

    def report(self, tasks: Sequence[Task], outcomes: Sequence[dict[str, Any]]) -> None:
        """The assistant tells what the tools gave."""
        answers = [answer(self.rng, task, outcome) for task, outcome in zip(tasks, outcomes, strict=True)]
        shown = [f"{key}={spoken(value)}" for outcome in outcomes for key, value in outcome.items()]
        names = " and ".join([task.tool.name for task in tasks])
        fields = ", ".join(dict.fromkeys(key for outcome in outcomes for key in outcome))
        self.say(
            " ".join(answers),
            "The result is there.",
            f"{names} gave {fields}. I tell the user.",
            *shown,
            "I add nothing to it.",
        )

    def forget(self) -> int:
        """Empty the reasoning of all assistant turns but the last; returns how many those are."""
        turns = [m for m in self.messages if m["role"] == "assistant"][:-1]
        for message in turns:
            message["reasoning_content"] = ""
        return len(turns)

    def dialogue(self, family: str, *, asked: str = "", num_given: int = 0) -> Dialogue:
        """The finished conversation."""
        return Dialogue(
            family=family,
            messages=self.messages,
            tools=[tool.schema() for tool in self.tools],
            effort=self.effort,
            asked=asked,
            num_given=num_given,
        )


def call_thoughts(tasks: Sequence[Task], effort: str | None) -> str:
    """Low names the tool, high also the arguments; max lists what the schema requires, then each value."""
    lines = []
    for task in tasks:
        # Names and values stand as their ids do in the schema and in the call: no space before them.
        if effort == "low":
            lines.append(f"{task.tool.name} fits.")
        elif effort == "high":
            lines.append(f"{task.tool.name} fits. Call it with {compact_json(list(task.arguments()))}.")
        else:
            # Copied from one place of the schema, the list is then the plan for the lines below it.
            lines.append(f"{task.tool.name} needs {compact_json(list(task.tool.required))}.")
            lines += [f"{key}={spoken(value)}" for key, value in task.arguments().items()]
            lines.append("No other value is told for it.")
    return "\n".join(lines)


def answer(rng: Draw, task: Task, outcome: dict[str, Any]) -> str:
    """A sentence that quotes a result."""
    if task.tool.answers and rng.random() < 0.7:
        template, known = rng.choice(task.tool.answers), task.values | outcome
        if all(slot in known for slot in SLOT.findall(template)):
            return fill(template, known)
    parts = [(key.replace("_", " "), spoken(value)) for key, value in outcome.items()]
    if len(parts) == 1:
        key, value = parts[0]
        return rng.choice((f"The {key} is {value}.", f"Done. {key}: {value}", f"{key}: {value}"))
    form = rng.choice(("{k}: {v}", "the {k} is {v}", "{k} = {v}"))
    told = [form.replace("{k}", key).replace("{v}", value) for key, value in parts]
    return rng.choice(("Done. ", "", "Result: ")) + ", ".join(told) + "."


def result_text(rng: Draw, outcome: dict[str, Any]) -> str:
    """A result as a tool writes it."""
    kind = rng.random()
    if kind < 0.12:
        return "\n".join([f"{key}: {spoken(value)}" for key, value in outcome.items()])
    made: dict[str, Any] = outcome
    if kind < 0.2:
        made = {rng.choice(("result", "data", "output")): outcome}
    elif kind < 0.27:
        made = {"ok": True, **outcome}
    elif kind < 0.37:
        made = {**outcome, values.name(rng): rng.choice((values.integer, values.word))(rng)} | outcome
    separators = (",", ":") if rng.random() < 0.3 else None
    return json.dumps(made, ensure_ascii=False, separators=separators)
