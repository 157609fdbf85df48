"""Conversations in which a tool fails: the error tells what to change, or there is nothing to be done."""

from __future__ import annotations

import json
from typing import Any

from gossamer.train.dialogue import offer
from gossamer.train.dialogue.scene import Dialogue, Scene, result_text
from gossamer.train.dialogue.schema import Parameter, Task, spoken
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
TRANSIENT = (
    "timeout, try again",
    "busy, please retry",
    "temporary failure, repeat the call",
    "rate limited; call again",
)
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
    if kind < 0.3:
        return _reported(scene, task)
    if kind < 0.42:
        retried, reason, note = task, rng.choice(TRANSIENT), "The tool failed for now. I try again."
    else:
        retried, reason, note = _corrected(rng, task)
    scene.results(error_text(rng, reason))
    scene.call(retried, note="" if effort == "low" else note)
    if rng.random() < 0.25:
        outcome = offer.outcome(rng, retried)
        scene.results(result_text(rng, outcome))
        scene.report([retried], [outcome])
    return finished(scene, "error+retry", task.family)


def _corrected(rng: Draw, task: Task) -> tuple[Task, str, str]:
    """The next call, the error that asks for it, and the thought between them."""
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
    return Task(tool=task.tool, values=task.values | {p.name: value}), reason, note


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


def error_text(rng: Draw, reason: str) -> str:
    """An error as a tool writes it."""
    kind = rng.random()
    if kind < 0.25:
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
    return json.dumps(made, ensure_ascii=False)
