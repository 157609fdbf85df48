"""Conversations in which something is decided in the thoughts of one turn only and needed in a later one.

The visible messages never tell the decision, so a client that drops `reasoning_content` takes it away. A
share of these conversations shows just that: the model then takes what it still can derive, or says that
it does not know any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.train.dialogue import offer, values
from gossamer.train.dialogue.scene import Dialogue, Scene, result_text
from gossamer.train.dialogue.turns import linked, referring, with_needed
from gossamer.train.dialogue.values import Draw

DROPPED_SHARE = 0.1
SECRETLY = (
    "but keep it to yourself", "but do not tell me", "without telling me", "silently",
    "and do not say it yet",
    "only in your head", "and keep it for later",
)  # fmt: skip
CONFIRMED = ("Done.", "I have done that.", "All right.", "It is decided.", "Yes, I keep it in mind.", "OK.")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Something the model settles in its thoughts."""

    order: str
    """What the user says."""
    note: str
    """The thought that settles it."""
    words: str
    """How the user points to it later."""
    value: Any
    derivable: Any = None
    """What is left to take when the note is gone; None for nothing."""


def pick(rng: Draw) -> Decision:
    """One of several options."""
    make = rng.choice(
        (values.word, values.person, values.city, values.identifier, values.pseudo_word, values.hard)
    )
    options = _different(rng, make, rng.choice((2, 3, 3, 4)))
    thing, value = values.ascii_word(rng), rng.choice(options)
    listed = rng.choice((", ", " or ", " / ", "; ", "\n")).join(options)
    verb, done = rng.choice((("Pick", "picked"), ("Choose", "chose"), ("Select", "selected"),
                             ("Decide on", "decided on"),
                             ("Take", "took"), ("Draw", "drew")))  # fmt: skip
    order = rng.choice(
        (
            f"{verb} one {thing}, {rng.choice(SECRETLY)}: {listed}.",
            f"{verb} one of these as the {thing}, {rng.choice(SECRETLY)}: {listed}.",
            f"Here are some {thing}s: {listed}. {verb} one, {rng.choice(SECRETLY)}.",
        )
    )
    note = rng.choice(
        (f"I {verb.lower()} {value}.", f"My {thing}: {value}.", f"{thing} = {value}", f"It will be {value}.")
    )
    words = rng.choice(
        (f"the {thing} you {done}", f"your {thing}", f"what you {done}", f"the one you {done}")
    )
    return Decision(order=order, note=note, words=words, value=value, derivable=options[-1])


def number(rng: Draw) -> Decision:
    """A whole number in a range."""
    low = rng.randint(0, 50)
    high = low + rng.randint(20, 900)
    value = rng.randint(low, high)
    order = rng.choice((f"Think of a number from {low} to {high}, {rng.choice(SECRETLY)}.",
                        f"Choose a number between {low} and {high}, {rng.choice(SECRETLY)}."))  # fmt: skip
    note = rng.choice(
        (f"My number is {value}.", f"Number: {value}", f"I think of {value}.", f"I take {value}.")
    )
    words = rng.choice(
        ("your number", "the number you thought of", "the number you chose", "that secret number")
    )
    return Decision(order=order, note=note, words=words, value=value)


def code(rng: Draw) -> Decision:
    """An invented name."""
    thing = rng.choice(("code word", "label", "name", "password", "tag", "key"))
    value = rng.choice((values.pseudo_word, values.mixed, values.identifier))(rng)
    order = rng.choice((f"Make up a {thing}, {rng.choice(SECRETLY)}.",
                        f"Invent a {thing} for this, {rng.choice(SECRETLY)}.",
                        f"We need a new {thing}. Think of one, {rng.choice(SECRETLY)}."))  # fmt: skip
    note = rng.choice(
        (f"The {thing} is {value}.", f"{thing}: {value}", f"I call it {value}.", f"New {thing}: {value}.")
    )
    words = rng.choice(
        (f"your {thing}", f"the {thing} you made up", f"that {thing}", f"the {thing} you invented")
    )
    return Decision(order=order, note=note, words=words, value=value)


def assigned(rng: Draw) -> Decision:
    """Things given to people or places."""
    count = rng.choice((2, 3, 3))
    keys = _different(rng, rng.choice((values.person, values.word)), count)
    goods = _different(rng, rng.choice((values.word, values.identifier, values.pseudo_word)), count)
    shuffled = rng.sample(goods, count)
    given = dict(zip(keys, shuffled, strict=True))
    thing, key = values.ascii_word(rng), rng.choice(keys)
    names, things, secretly = ", ".join(keys), ", ".join(goods), rng.choice(SECRETLY)
    order = rng.choice(
        (
            f"Give each of {names} one {thing} of {things}, {secretly}.",
            f"Assign the {thing}s {things} to {names} as you like, {secretly}.",
        )
    )
    joint = rng.choice((": ", " gets ", " = ", " has "))
    note = ", ".join([f"{k}{joint}{v}" for k, v in given.items()]) + "."
    words = rng.choice((f"the {thing} of {key}", f"what {key} has got", f"the {thing} you gave to {key}"))
    return Decision(order=order, note=note, words=words, value=given[key])


def ordered(rng: Draw) -> Decision:
    """A sequence the model chooses."""
    items = _different(
        rng, rng.choice((values.word, values.person, values.pseudo_word)), rng.choice((3, 3, 4))
    )
    mixed = rng.sample(items, len(items))
    place = rng.randrange(len(items))
    order = f"Put {', '.join(items)} in any order you like and number them, {rng.choice(SECRETLY)}."
    form = rng.choice(("{i}. {v}", "{i} = {v}", "{i}: {v}", "no. {i} {v}"))
    told = [form.replace("{i}", str(i)).replace("{v}", v) for i, v in enumerate(mixed, start=1)]
    words = rng.choice(
        (f"number {place + 1} of your order", f"your number {place + 1}", f"the one at place {place + 1}")
    )
    return Decision(
        order=order, note=", ".join(told) + ".", words=words, value=mixed[place], derivable=items[place]
    )


def total(rng: Draw) -> Decision:
    """A sum, which can be derived anew."""
    a, b = rng.randint(2, 60), rng.randint(2, 39)
    order = rng.choice(
        (f"Add {a} and {b}, {rng.choice(SECRETLY)}.", f"Work out {a} + {b}, {rng.choice(SECRETLY)}.")
    )
    note = f"{a} + {b} = {a + b}."
    words = rng.choice(("the sum", "your sum", "the total you got", "what you worked out"))
    return Decision(order=order, note=note, words=words, value=a + b, derivable=a + b)


DECISIONS: tuple[Callable[[Draw], Decision], ...] = (
    pick,
    pick,
    pick,
    number,
    code,
    code,
    assigned,
    ordered,
    total,
)


def _different(rng: Draw, make: Callable[[Draw], object], count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found.setdefault(str(make(rng)))
    return list(found)


def decided(rng: Draw, effort: str | None) -> Dialogue:
    """A decision in thought, something else in between, then a call (or an answer) that needs it."""
    made = rng.choice(DECISIONS)(rng)
    dropped = rng.random() < DROPPED_SHARE
    kind = "integer" if isinstance(made.value, int) else "string"
    tools, one, two = with_needed(rng, kind)
    scene = Scene(rng, effort, tools)
    value = made.derivable if dropped else made.value
    second = referring(rng, two, two.parameters[0], made.words, value)
    at_once = rng.random() < 0.35
    asked = _opening(scene, made, one, second.request if at_once else "")
    if not at_once:
        if scene.messages[-1]["role"] != "assistant":
            scene.say(
                rng.choice(CONFIRMED),
                "That is done.",
                "The tool has answered.",
                "I keep my choice to myself.",
            )
        if rng.random() < 0.15:
            return _told(scene, made, dropped)
        scene.user(second.request)
    if value is None:
        _lost(scene, made)
    else:
        scene.call(second, note=_remark(effort, made, dropped))
    num_given = scene.forget() if dropped else 0
    return scene.dialogue("recall dropped" if dropped else "recall", asked=asked, num_given=num_given)


def _opening(scene: Scene, made: Decision, tool: Any, later: str) -> str:
    """The first request with the decision; returns its way of asking."""
    rng = scene.rng
    if not later and rng.random() < 0.35:
        scene.user(made.order)
        scene.say(
            rng.choice(CONFIRMED), "I keep that to myself.", "The user will ask for it later.", note=made.note
        )
        return "plain"
    first = offer.task(rng, tool, scene.tools)
    scene.user(linked(rng, made.order, first.request, *([later] if later else [])))
    scene.call(first, note=made.note)
    scene.results(result_text(rng, offer.outcome(rng, first)))
    return first.family


def _remark(effort: str | None, made: Decision, dropped: bool) -> str:
    """What the later turn thinks of the earlier one; nothing at low effort."""
    if effort == "low":
        return ""
    return "My notes are gone." if dropped else f"My note says: {made.note}"


def _told(scene: Scene, made: Decision, dropped: bool) -> Dialogue:
    """The user asks for the decision itself."""
    ask = scene.rng.choice(("What was {w}?", "Tell me {w}.", "Now say {w}.", "Which was {w}?", "And {w}?"))
    scene.user(ask.replace("{w}", made.words))
    if dropped and made.derivable is None:
        _lost(scene, made)
    else:
        value = made.derivable if dropped else made.value
        why = "My notes are gone." if dropped else f"My note says: {made.note}"
        scene.say(f"{value}", f"It is {value}.", "The user asks for it now.", why)
    num_given = scene.forget() if dropped else 0
    return scene.dialogue("recall told", num_given=num_given)


def _lost(scene: Scene, made: Decision) -> None:
    scene.say(
        f"I do not know {made.words} any more.",
        "My notes are gone.",
        f"Nothing in the messages tells {made.words}.",
        "I must not make it up, so I say so.",
    )
