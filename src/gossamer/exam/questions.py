"""The questions of an exam: a seed and a number give one, whatever else is asked.

Of every twenty questions eleven ask for one call, three need no tool, four want a second call after a
tool's result and two a call after a tool's error.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.exam import task as tasks
from gossamer.exam.catalogue import FAMILIES as TOOL_FAMILIES
from gossamer.exam.catalogue import Tool
from gossamer.exam.phrasing import FAMILIES, PLAIN_KINDS
from gossamer.exam.task import Task
from gossamer.exam.values import STRING_KINDS, string
from gossamer.exam.words import WordSource

Rng = random.Random
Message = dict[str, Any]
EFFORTS = ("low", "high", "max")
BLOCK = ("call",) * 11 + ("no-tool",) * 3 + ("second",) * 4 + ("error",) * 2
CATEGORIES = ("call", "no-tool", "second", "error", "pass-back")
RESULT_FIELDS = ("docket", "tally_mark", "shelf_key", "stub", "imprint", "cipher_tag", "waybill")
SIDE_FIELDS = (("state", "settled"), ("queue", "drained"), ("took_ms", 31), ("warden", "on duty"))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A prompt and what a right answer to it is.

    Attributes:
        number: which of the exam.
        category: one of `CATEGORIES`.
        variant: what kind within the category.
        phrasing: family of the request that the answer serves; "" for requests without arguments.
        effort: "low", "high" or "max".
        tools: offered.
        messages: up to the one that the model writes.
        wanted: the call, or None for an answer without one.
        content: exact text of an answer without a call; None where any will do.
    """

    number: int
    category: str
    variant: str
    phrasing: str
    effort: str
    tools: list[dict[str, Any]]
    messages: list[Message]
    wanted: Task | None = None
    content: str | None = None

    def without_reasoning(self) -> Question:
        """The same question with the reasoning of earlier turns dropped."""
        bare = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in self.messages]
        return replace(self, messages=bare)


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Makes questions.

    Attributes:
        seed: another seed, another exam.
        words: of values and invented names.
    """

    seed: int
    words: WordSource = field(default_factory=WordSource)

    def question(self, number: int) -> Question:
        """Question number 0, 1, ... of the main part."""
        rng = random.Random(f"gossamer exam {self.seed}/{number}")
        order = list(BLOCK)
        random.Random(f"gossamer exam {self.seed}/block {number // len(BLOCK)}").shuffle(order)
        category = order[number % len(BLOCK)]
        effort = EFFORTS[number % 3]
        phrasing = self._phrasing("phrasing", number)
        make = {"call": _one_call, "no-tool": _no_tool, "second": _second, "error": _error}[category]
        return make(_Draw(rng, self.words, number, phrasing, effort))

    def pass_back(self, number: int) -> Question:
        """Question number 0, 1, ... of the part about the reasoning that is passed back."""
        rng = random.Random(f"gossamer exam {self.seed}/pass-back {number}")
        phrasing = self._phrasing("pass-back phrasing", number)
        return _pass_back(_Draw(rng, self.words, number, phrasing, EFFORTS[number % 3]))

    def _phrasing(self, part: str, number: int) -> str:
        """Every family once in each block of twelve, in an order of the block's own."""
        order = list(FAMILIES)
        random.Random(f"gossamer exam {self.seed}/{part} {number // len(order)}").shuffle(order)
        return order[number % len(order)]


@dataclass(frozen=True)
class _Draw:
    rng: Rng
    words: WordSource
    number: int
    phrasing: str
    effort: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return FAMILIES[self.phrasing].string_kinds

    def num_arguments(self) -> int:
        return self.rng.choice((1, 2, 2, 3, 3, 4))

    def task(self, *, least: int = 1, most: int = 4, first: str = "", avoid: str = "") -> Task:
        """A task whose tool has enough parameters, and one of kind `first`."""
        number = min(most, max(least, self.num_arguments()))
        while True:
            tool = tasks.any_tool(self.rng, self.words)
            has_first = not first or any(p.kind == first for p in tool.parameters)
            if tool.name != avoid and len(tool.parameters) >= number and has_first:
                return tasks.make(self.rng, self.words, tool, number, string_kinds=self.kinds, first=first)

    def write(self, task: Task, phrasing: str = "") -> str:
        return FAMILIES[phrasing or self.phrasing].write(self.rng, task)

    def offer(self, used: list[Task], number: int) -> list[dict[str, Any]]:
        """Declarations of the tools in use and of distractors, `number` in all, shuffled."""
        found = [task.schema() for task in used]
        own = [task.tool for task in used]
        found += tasks.distractors(self.rng, self.words, own, max(0, number - len(used)))
        self.rng.shuffle(found)
        return found

    def num_tools(self) -> int:
        return 1 + self.rng.randrange(5)

    def question(self, category: str, variant: str, tools: list[dict[str, Any]], **rest: Any) -> Question:
        return Question(
            number=self.number, category=category, variant=variant, effort=self.effort, tools=tools, **rest
        )


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _called(reasoning: str, task: Task) -> Message:
    """An earlier assistant turn."""
    calls = [tasks.call(task, "call_0")]
    return {"role": "assistant", "reasoning_content": reasoning, "content": "", "tool_calls": calls}


def _result(tree: Any) -> Message:
    return {"role": "tool", "tool_call_id": "call_0", "content": json.dumps(tree, ensure_ascii=False)}


def _thought(task: Task) -> str:
    """Plain sentences that name the tool and each parameter with its value."""
    values = " ".join(f"{a.name} = {_shown(a.value)}." for a in task.arguments)
    return f"I call {task.tool.name}. {values}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _one_call(draw: _Draw) -> Question:
    task = draw.task()
    text = draw.write(task)
    tools = draw.offer([task], draw.num_tools())
    return draw.question(
        "call", "one call", tools, phrasing=draw.phrasing, messages=[_user(text)], wanted=task
    )


GREETINGS = ("Good day to you, machine.", "Ahoy!", "Well met, stranger.", "Cheers for that, splendid work.",
             "I only wanted to say that I am back.", "Never mind, it has sorted itself out.")  # fmt: skip
RIDDLES = ("Which of my uncles is the tallest?", "How many gulls sat on the roof at noon?",
           "Who left the blue umbrella on the stairs?", "What did I dream of last night?",
           "How long is the rope in my attic?")  # fmt: skip
ECHOES = ("Type out, unchanged: {x}", "Give me back these characters and no others: {x}",
          "Print the line below verbatim.\n{x}", "Reply with precisely {x}")  # fmt: skip


def _no_tool(draw: _Draw) -> Question:
    """A greeting, a question nobody can answer, a text to repeat, or a task that no offered tool does."""
    rng = draw.rng
    variant = rng.choice(("greeting", "unanswerable", "repeat", "no tool fits"))
    content, phrasing, taken = None, "", []
    if variant == "greeting":
        text = rng.choice(GREETINGS)
    elif variant == "unanswerable":
        text = rng.choice(RIDDLES)
    elif variant == "repeat":
        content = string(rng.choice(STRING_KINDS), rng, draw.words)
        text = rng.choice(ECHOES).replace("{x}", content)
    else:
        task = draw.task()
        text, phrasing, taken = draw.write(task), draw.phrasing, _family_of(task.tool)
    tools = _unrelated(draw, taken)
    return draw.question(
        "no-tool", variant, tools, phrasing=phrasing, messages=[_user(text)], content=content
    )


def _family_of(tool: Tool) -> list[Tool]:
    return next((list(tools) for tools in TOOL_FAMILIES.values() if tool in tools), [tool])


def _unrelated(draw: _Draw, taken: list[Tool]) -> list[dict[str, Any]]:
    """Declarations of tools of other families than `taken`."""
    names = {tool.name for tool in taken}
    found: list[dict[str, Any]] = []
    for _ in range(draw.num_tools()):
        one = tasks.distractors(draw.rng, draw.words, [], 1)[0]
        while one["function"]["name"] in names:
            one = tasks.distractors(draw.rng, draw.words, [], 1)[0]
        names.add(one["function"]["name"])
        found.append(one)
    return found


def _second(draw: _Draw) -> Question:
    """A call that needs a value of an earlier tool's result."""
    rng = draw.rng
    variant = rng.choice(("planned", "follow-up"))
    if draw.phrasing == "json":
        # JSON cannot say "the docket of the result".
        draw = replace(draw, phrasing="use-tool")
    first = draw.task(most=2)
    second = draw.task(first="string", avoid=first.tool.name)
    field_name, other = rng.sample(RESULT_FIELDS, 2)
    linked = rng.choice([a for a in second.arguments if a.parameter.kind == "string"])
    result = {field_name: linked.value, other: string("letters", rng, draw.words)}
    if rng.random() < 0.5:
        result = dict(reversed(result.items()))
    spoken = f"the {field_name.replace('_', ' ')} of the result"
    said = replace(
        second,
        arguments=tuple(replace(a, spoken=spoken) if a is linked else a for a in second.arguments),
    )
    opening = draw.write(first, "imperative" if variant == "planned" else draw.phrasing)
    follow = draw.write(said)
    history = [_called(_thought(first), first), _result(result)]
    if variant == "planned":
        messages = [_user(f"{opening} As the next step: {follow}"), *history]
    else:
        done = {
            "role": "assistant",
            "reasoning_content": "The tool has answered.",
            "content": "That is done.",
        }
        messages = [_user(opening), *history, done, _user(follow)]
    tools = draw.offer([first, second], 2 + rng.randrange(3))
    return draw.question("second", variant, tools, phrasing=draw.phrasing, messages=messages, wanted=second)


def _error(draw: _Draw) -> Question:
    """A call after a tool's error, which says what to do."""
    rng = draw.rng
    variant = rng.choice(("retry", "other value", "other tool", "missing argument"))
    task = draw.task(least=2)
    text = draw.write(task)
    tried, wanted, used = task, task, [task]
    error: dict[str, Any] = {"error": "busy", "advice": "send the same call once more"}
    if variant == "other value":
        bad = rng.choice(task.arguments)
        spare = tasks.argument(rng, draw.words, bad.parameter, PLAIN_KINDS, dict(task.item_types))
        good = replace(bad, value=not bad.value if bad.parameter.kind == "boolean" else spare.value)
        if bad.parameter.kind != "array":
            good = replace(good, value_kind=spare.value_kind)
            wanted = replace(task, arguments=tuple(good if a is bad else a for a in task.arguments))
            error = {"error": f"{bad.name} is refused", "use_instead": {bad.name: good.value}}
        else:
            variant = "retry"
    elif variant == "other tool":
        name = f"{task.tool.name}_{rng.choice(('spare', 'annex', 'relay'))}"
        about = f"Does what {task.tool.name} does while that is closed."
        twin = replace(task.tool, name=name, about=about)
        wanted = replace(task, tool=twin)
        used = [task, wanted]
        error = {"error": f"{task.tool.name} is closed", "advice": f"call {name}"}
    elif variant == "missing argument":
        lost = rng.choice(task.arguments)
        tried = replace(task, arguments=tuple(a for a in task.arguments if a is not lost))
        error = {"error": f"{lost.name} is missing"}
    messages = [_user(text), _called(_thought(tried), tried), _result(error)]
    tools = draw.offer(used, max(len(used), draw.num_tools()))
    return draw.question("error", variant, tools, phrasing=draw.phrasing, messages=messages, wanted=wanted)


def _pass_back(draw: _Draw) -> Question:
    """A second call that needs a choice which stands in the earlier turn's reasoning alone."""
    rng = draw.rng
    kind = rng.choice(("string", "string", "string", "enum"))
    first = draw.task(most=2)
    second = draw.task(first=kind, avoid=first.tool.name)
    chosen = next(a for a in second.arguments if a.parameter.kind == kind)
    if kind == "string":
        value_kind = rng.choice(("word", "letters", "number-like"))
        new = replace(chosen, value=string(value_kind, rng, draw.words), value_kind=value_kind)
        second = replace(second, arguments=tuple(new if a is chosen else a for a in second.arguments))
        chosen = new
    what = chosen.name.replace("_", " ")
    said = replace(
        second,
        arguments=tuple(
            replace(a, spoken=f"the {what} of your choice") if a is chosen else a for a in second.arguments
        ),
    )
    if draw.phrasing == "json":
        draw = replace(draw, phrasing="key-values")
    text = (
        f"Pick a {what} yourself and keep to it. {draw.write(first, 'imperative')} "
        f"As the next step: {draw.write(said)}"
    )
    reasoning = f"I choose {chosen.value} for it. {chosen.name} = {chosen.value}. First: {_thought(first)}"
    result = dict(rng.sample(SIDE_FIELDS, 2))
    messages = [_user(text), _called(reasoning, first), _result(result)]
    tools = draw.offer([first, second], 2 + rng.randrange(3))
    return draw.question("pass-back", kind, tools, phrasing=draw.phrasing, messages=messages, wanted=second)
