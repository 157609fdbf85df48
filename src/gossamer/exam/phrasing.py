"""How a request is written: twelve families, four of which are kept for tests alone.

The eight others are notations anybody would train on (an imperative, a list, JSON); the sentences are the
exam's own in all twelve.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.exam.task import Argument, Task
from gossamer.exam.values import AWKWARD, STRING_KINDS

Rng = random.Random
PLAIN_KINDS = tuple(kind for kind in STRING_KINDS if kind not in AWKWARD)
_BARE = frozenset({"word", "letters", "uuid", "cjk"})


@dataclass(frozen=True, kw_only=True)
class Family:
    """One way to write a request.

    Attributes:
        write: makes the text.
        is_test_only: whether the notation is meant to be unknown to the model.
        string_kinds: kinds of string it can hold without escapes.
    """

    write: Callable[[Rng, Task], str]
    is_test_only: bool = False
    string_kinds: tuple[str, ...] = STRING_KINDS


def label(rng: Rng, argument: Argument) -> str:
    """What an argument is called: the parameter's words, its very name, or its description."""
    kind = rng.random()
    if kind < 0.2:
        return argument.name
    if kind < 0.4 and argument.parameter.kind != "boolean":
        return argument.parameter.about
    return argument.name.replace("_", " ")


def in_prose(rng: Rng, argument: Argument) -> str:
    """The value inside a sentence, set off where its end would be unclear."""
    value = argument.value
    if argument.spoken:
        return argument.spoken
    if isinstance(value, str):
        if argument.value_kind in AWKWARD:
            return f"`{value}`"
        return value if argument.value_kind in _BARE or argument.parameter.kind == "enum" else f'"{value}"'
    if isinstance(value, bool):
        return _boolean(rng, value)
    if isinstance(value, list):
        return ", ".join(map(str, value[:-1])) + f" and {value[-1]}"
    if isinstance(value, dict):
        return " and ".join(f"{key} {part}" for key, part in value.items())
    return json.dumps(value)


def on_a_line(rng: Rng, argument: Argument) -> str:
    """The value at the end of a line of its own."""
    value = argument.value
    if argument.spoken:
        return argument.spoken
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _boolean(rng, value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) if rng.random() < 0.6 else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and rng.random() < 0.6:
        return ", ".join(f"{key} = {part}" for key, part in value.items())
    return json.dumps(value, ensure_ascii=False)


def _boolean(rng: Rng, value: bool) -> str:
    return rng.choice(("true", "true", "yes") if value else ("false", "false", "no"))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _act(rng: Rng, task: Task) -> str:
    return rng.choice(task.tool.acts)


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _pairs(rng: Rng, task: Task, form: str) -> list[str]:
    """Each argument through `form`, which holds {l} for the label and {v} for the value."""
    return [form.replace("{l}", label(rng, a)).replace("{v}", in_prose(rng, a)) for a in task.arguments]


def _lines(rng: Rng, task: Task, form: str) -> str:
    return "\n".join(
        form.replace("{l}", label(rng, a)).replace("{v}", on_a_line(rng, a)) for a in task.arguments
    )


def _fill(template: str, act: str, rest: str) -> str:
    """Put act and rest in by hand: values may hold braces."""
    head, _, tail = template.partition("{rest}")
    return head.replace("{act}", act).replace("{Act}", _upper(act)) + rest + tail.replace("{act}", act)


def imperative(rng: Rng, task: Task) -> str:
    """An order in one sentence."""
    form = rng.choice(("{l} {v}", "the {l} {v}", "{l} = {v}"))
    template = rng.choice(("{Act}: {rest}.", "{Act}, taking {rest}.", "Go and {act}, {rest}."))
    return _fill(template, _act(rng, task), _joined(_pairs(rng, task, form)))


def question(rng: Rng, task: Task) -> str:
    """A question with the arguments in it or after it."""
    template = rng.choice((
        "Are you able to {act} where {rest}?",
        "Will you {act}, given that {rest}?",
        "Is now a good hour to {act}? Here {rest}.",
    ))  # fmt: skip
    return _fill(template, _act(rng, task), _joined(_pairs(rng, task, "the {l} is {v}")))


def key_values(rng: Rng, task: Task) -> str:
    """A block of lines, a name and a value each."""
    form = rng.choice(("{l}: {v}", "{l} = {v}", "{l}:\t{v}"))
    template = rng.choice(("{Act}.\n\n{rest}", "{Act} like this:\n{rest}", "To do: {act}\n{rest}"))
    return _fill(template, _act(rng, task), _lines(rng, task, form))


def bullets(rng: Rng, task: Task) -> str:
    """A bulleted list."""
    form = rng.choice(("- {l}: {v}", "* {l} is {v}", "+ {l}: {v}"))
    template = rng.choice(("{Act}; the points:\n{rest}", "What matters here:\n{rest}\nNow {act}."))
    return _fill(template, _act(rng, task), _lines(rng, task, form))


def narrative(rng: Rng, task: Task) -> str:
    """A small story that holds the arguments."""
    template = rng.choice((
        "We came back after lunch and had to {act}. The foreman had told us that {rest}. Do it now.",
        "My cousin used to {act} every spring. This year it falls to me: {rest}. Take care of it.",
        "It rained all night, yet we still must {act}. On the slip I read that {rest}.",
    ))  # fmt: skip
    return _fill(template, _act(rng, task), _joined(_pairs(rng, task, "the {l} is {v}")))


def use_tool(rng: Rng, task: Task) -> str:
    """The tool by its name."""
    form = rng.choice(("{l}={v}", "{l} {v}", "{l} as {v}"))
    template = rng.choice(("Run {t} with {rest}.", "Apply {t}, setting {rest}.", "{t} is the tool: {rest}."))
    return _fill(template.replace("{t}", task.tool.name), "", _joined(_pairs(rng, task, form)))


def json_dump(rng: Rng, task: Task) -> str:
    """The arguments as JSON."""
    tree = {rng.choice((a.name, a.name.replace("_", " "))): a.value for a in task.arguments}
    text = json.dumps(tree, ensure_ascii=False, indent=rng.choice((None, None, 2)))
    template = rng.choice(("{Act}.\n{rest}", "{rest}\n{Act} from this.", "input for: {act}\n{rest}"))
    return _fill(template, _act(rng, task), text)


def values_first(rng: Rng, task: Task) -> str:
    """Each value before what it is."""
    form = rng.choice(("{v} is the {l}", "{v} as {l}", "{v} for the {l}"))
    template = rng.choice(("{rest}: {act} like so.", "{rest}. Now {act}."))
    return _fill(template, _act(rng, task), _joined(_pairs(rng, task, form)))


def email(rng: Rng, task: Task) -> str:
    """A letter with greeting and sign-off."""
    sender, reader = rng.choice(("Ottilie", "Bartosz", "Wanjiku")), rng.choice(("team", "night crew", "desk"))
    template = rng.choice((
        f"Dear {reader},\n\nwe would be grateful if you could {{act}} today. You need this: {{rest}}.\n\n"
        f"Kind regards\n{sender}",
        f"Subject: {{act}}\n\nHi {reader},\n\nas agreed on Friday, {{rest}}.\n\nBest wishes,\n{sender}",
    ))  # fmt: skip
    return _fill(template, _act(rng, task), _joined(_pairs(rng, task, "the {l} is {v}")))


def table_row(rng: Rng, task: Task) -> str:
    """A header row and a row of values."""
    bar = rng.choice((" | ", "; "))
    head = bar.join(label(rng, a) for a in task.arguments)
    row = bar.join(on_a_line(rng, a) for a in task.arguments)
    template = rng.choice(("{Act} for this row:\n{rest}", "{rest}\n\nPer the table, {act}."))
    return _fill(template, _act(rng, task), f"{head}\n{row}")


def polite(rng: Rng, task: Task) -> str:
    """An indirect request."""
    template = rng.choice((
        "I was wondering whether somebody might {act} ({rest}), if it is no trouble.",
        "It would help me a great deal to have someone {act}. For the record, {rest}.",
        "I do not suppose there is any chance to {act} with {rest}, is there?",
    ))  # fmt: skip
    form = "{v} being the {l}" if template.startswith("I do not") else "{l}: {v}"
    return _fill(template, _act(rng, task), "; ".join(_pairs(rng, task, form)))


def arrow_notes(rng: Rng, task: Task) -> str:
    """Hasty notes with arrows."""
    form = rng.choice(("{l} -> {v}", "{v} <- {l}", "{l} => {v}"))
    template = rng.choice(("note to self / {act}\n{rest}", "{rest}\n(then {act})"))
    return _fill(template, _act(rng, task), _lines(rng, task, form))


FAMILIES: dict[str, Family] = {
    "imperative": Family(write=imperative),
    "question": Family(write=question),
    "key-values": Family(write=key_values),
    "bullets": Family(write=bullets),
    "narrative": Family(write=narrative),
    "use-tool": Family(write=use_tool),
    "json": Family(write=json_dump, string_kinds=PLAIN_KINDS),
    "values-first": Family(write=values_first),
    "e-mail": Family(write=email, is_test_only=True),
    "table-row": Family(write=table_row, is_test_only=True, string_kinds=PLAIN_KINDS),
    "polite": Family(write=polite, is_test_only=True),
    "arrow-notes": Family(write=arrow_notes, is_test_only=True),
}
