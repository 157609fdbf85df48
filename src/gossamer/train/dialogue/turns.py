"""Conversations with calls: one, several, and second ones that need what came before."""

from __future__ import annotations

from typing import Any

from gossamer.train.dialogue import invent, offer, phrase, values
from gossamer.train.dialogue.saying import Reference, label, said, style
from gossamer.train.dialogue.scene import Dialogue, Scene, result_text
from gossamer.train.dialogue.schema import Parameter, Task, Tool
from gossamer.train.dialogue.values import Draw

LINKS = (
    " Then ",
    " After that, ",
    " Also: ",
    " And then: ",
    "\nNext: ",
    " Second: ",
    " When that is done: ",
    "\n\n",
)
OF_RESULT = (
    "the {f} it returned", "the {f} from the result", "the {f} you got", "that {f}", "the returned {f}",
    "the {f} of the result", "the {f} it gives", "the {f} from before", "the new {f}",
)  # fmt: skip
OF_REQUEST = (
    "the same {f}", "the {f} I gave", "the {f} from my first message", "the {f} of before",
    "the {f} as before",
)  # fmt: skip
AGAIN = (
    "The same again with {l} {v}.", "Once more, but {l} {v}.", "Now with {v} as {l}.",
    "Do it again for {l} {v}.",
    "Repeat that, {l} = {v} this time.", "And now {l}: {v}, the rest as before.",
    "Same, only the {l} is {v}.",
)  # fmt: skip
HISTORY_SHARE = 0.1
"""How often a further turn is asked for without the reasoning of the earlier ones."""


def linked(rng: Draw, *requests: str) -> str:
    """Several requests as one message; one that does not end like a sentence ends its line."""
    made = requests[0]
    for request in requests[1:]:
        link = rng.choice(LINKS)
        made += (link if made[-1] in ".!?" else "\n" + link.lstrip()) + request
    return made


def number_of_tools(rng: Draw) -> int:
    """One to five."""
    return min(rng.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 5)), 1 + round(4 * rng.difficulty))


def finished(scene: Scene, family: str, asked: str) -> Dialogue:
    """Close a conversation of several turns; a share of them loses its earlier reasoning."""
    num_given = scene.forget() if scene.rng.random() < HISTORY_SHARE else 0
    return scene.dialogue(family, asked=asked, num_given=num_given)


def single(rng: Draw, effort: str | None) -> Dialogue:
    """One call; a third of the time with its result and the answer."""
    tools = offer.offers(rng, number_of_tools(rng))
    task = offer.task(rng, tools[0], tools)
    scene = Scene(rng, effort, tools)
    scene.user(task.request)
    scene.call(task)
    if rng.random() < 0.22:
        outcome = offer.outcome(rng, task)
        scene.results(result_text(rng, outcome))
        scene.report([task], [outcome])
        return scene.dialogue("call+result", asked=task.family)
    return scene.dialogue("call", asked=task.family)


def parallel(rng: Draw, effort: str | None) -> Dialogue:
    """Two calls at once: of two tools, or of one with two values."""
    tools = offer.offers(rng, max(2, number_of_tools(rng)))
    scene = Scene(rng, effort, tools)
    first = offer.task(rng, tools[0], tools)
    texts = [name for name, value in first.values.items() if isinstance(value, str)]
    if len(first.values) == 1 and texts and not first.tool.parameters[0].enum and rng.random() < 0.6:
        p = first.tool.parameter(texts[0])
        tasks = [Task(tool=first.tool, values={p.name: p.make(rng)}) for _ in range(2)]
        how = style(rng)
        both = " and ".join([said(task.values[p.name], how) for task in tasks])
        form = rng.choice(
            ("{w} twice, for the {l} {b}.", "{w} for each {l}: {b}", "{w} with {l} {b}, one call each.")
        )
        request = form.replace("{w}", first.tool.wish).replace("{l}", label(p, how)).replace("{b}", both)
    else:
        tasks = [first, offer.task(rng, tools[1], tools)]
        request = linked(rng, tasks[0].request, tasks[1].request)
    scene.user(request)
    scene.call(*tasks)
    if rng.random() < 0.2:
        outcomes = [offer.outcome(rng, task) for task in tasks]
        scene.results(*[result_text(rng, outcome) for outcome in outcomes])
        scene.report(tasks, outcomes)
    return scene.dialogue("calls", asked=first.family)


def with_needed(rng: Draw, kind: str) -> tuple[list[Tool], Tool, Tool]:
    """Tools on offer, the first to be called, and a second whose first argument has type `kind`."""
    tools = offer.offers(rng, max(1, number_of_tools(rng) - 1))
    taken = {tool.name for tool in tools}
    while True:
        second = invent.tool(rng, need=kind)
        if second.name not in taken and all(second.group != tool.group for tool in tools):
            return [*tools, second], tools[0], second


def referring(rng: Draw, tool: Tool, p: Parameter, words: str, value: Any) -> Task:
    """A call one of whose values is told only by words that point to it."""
    given = tool.draw(rng) | {p.name: Reference(words)}
    family, request = phrase.request(rng, tool, given)
    return Task(tool=tool, values=given | {p.name: value}, request=request, family=family)


def chained(rng: Draw, effort: str | None) -> Dialogue:
    """A second call that needs the result of the first, asked for at once or afterwards."""
    tools, one, two = with_needed(rng, rng.choice(("string", "string", "integer")))
    p = two.parameters[0]
    first = offer.task(rng, one, tools)
    wanted = values.name(rng) if rng.random() < 0.7 else p.name
    outcome = offer.outcome(rng, first) if one.outcome is None else {}
    outcome = {wanted: p.make(rng)} | {key: value for key, value in outcome.items() if key != wanted}
    outcome = {key: outcome[key] for key in rng.sample(list(outcome), len(outcome))}
    words = rng.choice(OF_RESULT).replace("{f}", wanted.replace("_", " ") if rng.random() < 0.7 else wanted)
    second = referring(rng, two, p, words, outcome[wanted])
    scene = Scene(rng, effort, tools)
    at_once = rng.random() < 0.5
    scene.user(linked(rng, first.request, second.request) if at_once else first.request)
    scene.call(first)
    scene.results(result_text(rng, outcome))
    if not at_once:
        if rng.random() < 0.5:
            scene.report([first], [outcome])
        scene.user(second.request)
    scene.call(second)
    _perhaps_end(scene, second)
    return finished(scene, "chained" if at_once else "followed", first.family)


def again(rng: Draw, effort: str | None) -> Dialogue:
    """The same call once more with one value changed, or another that takes a value of the first request."""
    if rng.random() < 0.5:
        return _carried(rng, effort)
    tools = offer.offers(rng, number_of_tools(rng))
    first = offer.task(rng, tools[0], tools)
    p = first.tool.parameter(rng.choice(list(first.values)))
    changed = Task(tool=first.tool, values=first.values | {p.name: p.make(rng)})
    how = style(rng)
    shown = said(changed.values[p.name], how)
    request = rng.choice(AGAIN).replace("{l}", label(p, how)).replace("{v}", shown)
    scene = Scene(rng, effort, tools)
    _first_part(scene, first)
    scene.user(request)
    scene.call(changed)
    _perhaps_end(scene, changed)
    return finished(scene, "again", first.family)


def _carried(rng: Draw, effort: str | None) -> Dialogue:
    tools, one, two = with_needed(rng, "string")
    first = offer.task(rng, one, tools)
    texts = [name for name, value in first.values.items() if isinstance(value, str)]
    if not texts:
        return single(rng, effort)
    source = one.parameter(rng.choice(texts))
    called = rng.choice((source.name, source.said[0]))
    words = rng.choice(OF_REQUEST).replace("{f}", called)
    second = referring(rng, two, two.parameters[0], words, first.values[source.name])
    scene = Scene(rng, effort, tools)
    _first_part(scene, first)
    scene.user(second.request)
    scene.call(second)
    _perhaps_end(scene, second)
    return finished(scene, "carried", first.family)


def _first_part(scene: Scene, task: Task) -> None:
    """A request, its call, the result and half of the time the answer."""
    scene.user(task.request)
    scene.call(task)
    outcome = offer.outcome(scene.rng, task)
    scene.results(result_text(scene.rng, outcome))
    if scene.rng.random() < 0.5:
        scene.report([task], [outcome])


def _perhaps_end(scene: Scene, task: Task) -> None:
    if scene.rng.random() < 0.15:
        outcome = offer.outcome(scene.rng, task)
        scene.results(result_text(scene.rng, outcome))
        scene.report([task], [outcome])
