"""Conversations in which a tool fails: the error tells what to change, or there is nothing to be done."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gossamer.train.dialogue import offer, values
from gossamer.train.dialogue.scene import Dialogue, Scene, result_text
from gossamer.train.dialogue.schema import Parameter, Task, Tool, spoken
from gossamer.train.dialogue.turns import finished, number_of_tools
from gossamer.train.dialogue.values import Draw

WRONG = (
    "unknown {k} {o}, use {v}", "no such {k}: {o}; did you mean {v}?", "{k} must be {v}",
    "invalid {k}, expected {v}",
    "{k} {o} is now called {v}", "bad value for {k}: try {v}", "{k}: {o} not allowed, only {v}",
    "{o} not found. Closest {k}: {v}",
    "{k} was rejected; the right one is {v}", "please send {k} = {v}", "{k} has moved to {v}",
)  # fmt: skip
MISSING = (
    "missing {k}, use {v}", "{k} is required; take {v}", "argument {k} not given (default {v})",
    "add {k}: {v}",
    "cannot continue without {k}; {v} is fine",
)  # fmt: skip
TOLD = ("bad {k}", "{k} does not fit", "wrong {k}", "cannot use this {k}", "{k}")
TRANSIENT = (
    "timeout, try again",
    "busy, please retry",
    "temporary failure, repeat the call",
    "rate limited; call again",
)
LEFT_OUT = (
    "{k} was not given", "no value for {k}", "where is {k}?", "{k} must not be empty", "incomplete call: {k}",
)  # fmt: skip
ELSEWHERE = (
    "{o} is down, take {n}", "{o} was replaced by {n}", "use {n} in place of {o}",
    "{o} does not answer; {n} does", "moved: {n}", "try {n}",
)  # fmt: skip
PERMANENT = (
    "permission denied", "service unavailable", "not found", "quota exceeded", "account locked",
    "no connection",
    "internal error 500", "disabled by the administrator", "read only",
)  # fmt: skip


def failing(rng: Draw, effort: str | None) -> Dialogue:
    """A call, an error, and what follows from it."""
    tools = offer.offers(rng, number_of_tools(rng))
    task = offer.task(rng, tools[0], tools)
    scene = Scene(rng, effort, tools)
    scene.user(task.request)
    scene.call(task)
    kind = rng.random()
    if kind < 0.12:
        return _reported(scene, task)
    if kind < 0.3:
        return _elsewhere(rng, effort, tools, task)
    if kind < 0.45 and len(task.values) > 1:
        return _left_out(scene, task)
    if kind < 0.6:
        retried, reason, note = task, rng.choice(TRANSIENT), "The tool failed for now. I try again."
        hint = None
    else:
        retried, reason, note, hint = _corrected(rng, task)
    scene.results(error_text(rng, reason, hint))
    scene.call(retried, note="" if effort == "low" else note)
    if rng.random() < 0.25:
        outcome = offer.outcome(rng, retried)
        scene.results(result_text(rng, outcome))
        scene.report([retried], [outcome])
    return finished(scene, "error+retry", task.family)


def _corrected(rng: Draw, task: Task) -> tuple[Task, str, str, dict[str, Any] | None]:
    """The next call, the error that asks for it, the thought between them, perhaps a field that tells it."""
    absent = [p for p in task.tool.parameters if p.name not in task.values]
    if absent and rng.random() < 0.4:
        p, form = rng.choice(absent), rng.choice(MISSING)
        value = p.make(rng)
        note = f"{p.name} is missing."
    else:
        p, form = task.tool.parameter(rng.choice(list(task.values))), rng.choice(WRONG)
        value = _other(rng, p, task.values[p.name])
        note = f"{p.name} was wrong."
    old = spoken(task.values.get(p.name, ""))
    reason = form.replace("{k}", p.name).replace("{o}", old).replace("{v}", spoken(value))
    hint = None
    if rng.random() < 0.4:
        reason = rng.choice(TOLD).replace("{k}", p.name)
        hint = {rng.choice(("expected", "valid", "suggestion", values.name(rng))): {p.name: value}}
    return Task(tool=task.tool, values=task.values | {p.name: value}), reason, note, hint


def _left_out(scene: Scene, task: Task) -> Dialogue:
    """The first call, not the model's own, lacks what the request told."""
    name = scene.rng.choice(list(task.values))
    given = {key: value for key, value in task.values.items() if key != name}
    scene.messages.pop()
    scene.call(Task(tool=task.tool, values=given))
    scene.results(error_text(scene.rng, scene.rng.choice(LEFT_OUT).replace("{k}", name)))
    scene.call(task, note="" if scene.effort == "low" else f"{name} was left out.")
    return scene.dialogue("error+left out", asked=task.family, num_given=1)


def _elsewhere(rng: Draw, effort: str | None, tools: list[Tool], task: Task) -> Dialogue:
    """Another tool that takes the same arguments serves instead."""
    old = task.tool.name
    mark = rng.choice(("_", "-", "."))
    name = rng.choice((f"{old}{mark}{values.ascii_word(rng)}", f"{values.ascii_word(rng)}{mark}{old}",
                       values.name(rng)))  # fmt: skip
    about = (
        rng.choice((f"Stands in for {old}", f"The same as {old}", f"Like {old}", ""))
        if rng.random() < 0.8
        else ""
    )
    twin = replace(task.tool, name=name, about=about)
    scene = Scene(rng, effort, [*tools, twin])
    scene.user(task.request)
    scene.call(task)
    reason = rng.choice(ELSEWHERE).replace("{o}", old).replace("{n}", name)
    scene.results(error_text(rng, reason))
    moved = Task(tool=twin, values=task.values)
    scene.call(moved, note="" if effort == "low" else f"{old} does not work, {name} does.")
    return finished(scene, "error+elsewhere", task.family)


def _other(rng: Draw, p: Parameter, old: Any) -> Any:
    for _ in range(8):
        value = p.make(rng)
        if value != old:
            break
    return value


def _reported(scene: Scene, task: Task) -> Dialogue:
    reason = scene.rng.choice(PERMANENT)
    scene.results(error_text(scene.rng, reason))
    name = task.tool.name
    scene.say(
        scene.rng.choice((f"{name} failed: {reason}.", f"I could not {task.tool.wish}: {reason}.")),
        "The tool failed.",
        f"{name} says {reason}. I tell the user.",
        "No other value would help, so I do not call it again.",
    )
    return finished(scene, "error+report", task.family)


def error_text(rng: Draw, reason: str, hint: dict[str, Any] | None = None) -> str:
    """An error as a tool writes it, with a further field."""
    kind = rng.random()
    if kind < 0.25 and hint is None:
        return rng.choice(("Error: {}", "ERROR {}", "failed: {}", "{}")).replace("{}", reason)
    made = rng.choice(
        (
            {"error": reason},
            {"error": {"message": reason, "code": rng.randint(400, 599)}},
            {"ok": False, "message": reason},
            {"status": "error", "detail": reason},
            {"result": None, "error": reason},
        )
    )
    return json.dumps(made | (hint or {}), ensure_ascii=False)
