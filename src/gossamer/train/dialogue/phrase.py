"""How a user asks: one call said in one of many forms, every value still written out in the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gossamer.train.dialogue import values
from gossamer.train.dialogue.saying import Reference, Style, fragment, joined, label, said, style
from gossamer.train.dialogue.schema import Parameter, Tool
from gossamer.train.dialogue.values import Draw

Items = list[tuple[Parameter, Any]]

OPENINGS = (
    "Please ",
    "please ",
    "Can you ",
    "Could you ",
    "I need you to ",
    "I want to ",
    "I would like to ",
    "Now ",
    "Hi, ",
    "Hey, ",
    "Time to ",
    "We have to ",
    "Let's ",
    "Go and ",
    "Quickly ",
    "Kindly ",
    "You should ",
    "My task for you: ",
    "It is time to ",
    "Would you ",
)
CLOSINGS = (
    "",
    "",
    "",
    "",
    " Thanks!",
    " Thank you.",
    " That is all.",
    " It is urgent.",
    " Cheers",
    " OK?",
)
NOISE = (
    "The {a} is {b} today.", "I was busy with the {a}.", "Never mind the {a} {b}.",
    "{n} asked me about the {a}.",
    "We talked about {a} and {b}.", "My {a} is {b} again.", "There are {i} {a}s here.", "I like {a}.",
    "({a} {b} is closed.)", "{n} is away until {d}.", "Forget what I said about the {a}.", "Hello!",
)  # fmt: skip


def imperative(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """One order with the arguments as its parts."""
    parts = [fragment(rng, p, v, how) for p, v in items]
    head = _opened(rng, tool.wish) if rng.random() < 0.6 else _capital(tool.wish)
    return f"{head} {joined(rng, parts)}{rng.choice('.!.')}"


def question(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """The same as a question."""
    start = rng.choice(
        ("Can you {}", "Could you {}", "Would you {}", "Is it possible to {}", "How about we {}",
        "Will you {}",
         "May I ask you to {}", "Can someone {}", "Why don't you {}", "Do you think you can {}")
    )  # fmt: skip
    return (
        start.replace("{}", tool.wish) + " " + joined(rng, [fragment(rng, p, v, how) for p, v in items]) + "?"
    )


def block(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """Lines of keys and values."""
    head = rng.choice(
        (_capital(tool.wish), tool.name, f"Tool: {tool.name}", f"{tool.wish}:", f"Task: {tool.wish}")
    )
    joint = rng.choice((": ", " = ", "=", " -> ", " - ", "\t"))
    lines = [f"{label(p, how)}{joint}{said(v, how, alone=True)}" for p, v in items]
    return "\n".join([head, *lines] if rng.random() < 0.75 else [*lines, head])


def bullets(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """A list, numbered or with marks."""
    mark = rng.choice(("- ", "* ", "• ", "{i}. ", "{i}) "))
    form = rng.choice(
        ("{l}: {v}", "{l} = {v}", "{v} ({l})", "the {l} is {v}", "{l} should be {v}", "{l}\n  {v}")
    )
    lines = []
    for number, (p, v) in enumerate(items, start=1):
        shown = said(v, how, alone=form.endswith("{v}"))
        lines.append(
            mark.replace("{i}", str(number)) + form.replace("{l}", label(p, how)).replace("{v}", shown)
        )
    head = rng.choice(("{}:", "{} with", "{}. Details:", "{} like this:", "{}\n")).replace(
        "{}", _opened(rng, tool.wish)
    )
    return "\n".join([head, *lines])


def narrative(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """A few sentences, one argument each."""
    forms = ("The {l} is {v}.", "{l} should be {v}.", "Use {v} as {l}.", "For {l} take {v}.",
    "Set {l} to {v}.",
             "Its {l} must be {v}.", "I chose {v} for the {l}.", "Make the {l} {v}.", "As for {l}: {v}.",
             "{v} is the {l}.")  # fmt: skip
    told = [rng.choice(forms).replace("{l}", label(p, how)).replace("{v}", said(v, how)) for p, v in items]
    goal = rng.choice(("I have to {}.", "My plan is to {}.", "Somebody must {}.", "We want to {}.",
                       "You are going to {}.",
                       "It would be good to {}.",
                       "The next thing to do: {}.")).replace("{}", tool.wish)  # fmt: skip
    told.insert(0 if rng.random() < 0.6 else len(told), goal)
    return " ".join(told)


def named(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """The tool by its name, then the arguments."""
    pair = rng.choice(
        ("{l} {v}", "{l} = {v}", "{l}: {v}", "{l} set to {v}", "{v} as {l}", "{l}={v}", "{v} for {l}")
    )
    pairs = joined(rng, [pair.replace("{l}", label(p, how)).replace("{v}", said(v, how)) for p, v in items])
    head = rng.choice(("Use {} with", "Call {} with", "Run {}:", "{}:", "I need {} with", "{},",
                       "Please use {} and pass",
                       "Invoke {},", "Try the tool {} with", "With {} please:",
                       "Make a call to {} where"))  # fmt: skip
    return f"{head.replace('{}', tool.name)} {pairs}{rng.choice(('.', '', '.'))}"


def code(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """A function call or a command line."""
    kind = rng.random()
    if kind < 0.4:
        inside = ", ".join([f"{p.name}={json.dumps(v, ensure_ascii=False)}" for p, v in items])
        return rng.choice(("{}", "Do {}", "Run `{}`", "execute {} now")).replace(
            "{}", f"{tool.name}({inside})"
        )
    dash = rng.choice(("--", "--", "-", "/", ""))
    joint = rng.choice((" ", "=", "=")) if dash else "="
    parts = [f"{dash}{p.name}{joint}{json.dumps(v, ensure_ascii=False)}" for p, v in items]
    return rng.choice(("", "$ ", "/", "> ", "please run: ")) + " ".join([tool.name, *parts])


def dumped(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """JSON or something like it."""
    given = {p.name: v for p, v in items}
    kind = rng.random()
    made: Any = given
    if kind < 0.3:
        made = {
            rng.choice(("tool", "do", "action", "name")): tool.name,
            rng.choice(("args", "with", "input")): given,
        }
    elif kind < 0.45:
        made = {rng.choice(("tool", "do", "action", "task")): tool.wish, **given}
    text = json.dumps(made, ensure_ascii=False, indent=rng.choice((None, None, None, 1)))
    if rng.random() < 0.2:
        text = "{" + ", ".join([f"{k}: {json.dumps(v, ensure_ascii=False)}" for k, v in given.items()]) + "}"
        made = given
    if made is not given:
        return text
    forms = ("{w}: {t}", "{n} {t}", "{t}\n{w} with this", "Data: {t}. {c}.", "{c} from this JSON:\n{t}")
    said_with = rng.choice(forms).replace("{w}", tool.wish).replace("{n}", tool.name)
    return said_with.replace("{c}", _capital(tool.wish)).replace("{t}", text)


def values_first(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """Values before what they are for."""
    form = rng.choice(
        (
            "{v} is the {l}",
            "{v} ({l})",
            "{v} for {l}",
            "{v} as the {l}",
            "Take {v} as {l}",
            "{v}: {l}",
            "{v} = {l}",
        )
    )
    pairs = [form.replace("{l}", label(p, how)).replace("{v}", said(v, how)) for p, v in items]
    goal = rng.choice(
        ("{}", "now {}", "with that, {}", "that is how to {}", "please {}", "and {} with these")
    )
    return f"{joined(rng, pairs)}{rng.choice(('. ', '; ', ' - ', ', '))}{goal.replace('{}', tool.wish)}."


def telegram(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """As few words as possible."""
    joint = rng.choice((" ", ", ", " / ", " | ", "; ", " - "))
    parts = [f"{label(p, how)} {said(v, how)}" for p, v in items]
    if len(items) == 1 and isinstance(items[0][1], str):
        parts = [said(items[0][1], how)]
    head = tool.wish.replace(" the ", " ", 1) if rng.random() < 0.7 else tool.name
    return joint.join([head, *parts] if rng.random() < 0.85 else [*parts, head])


def table(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """Rows of a table, or a form to fill in."""
    rows = [(label(p, how), said(v, how, alone=True)) for p, v in items]
    kind = rng.random()
    if kind < 0.4:
        lines = [f"| {a} | {b} |" for a, b in rows]
    elif kind < 0.7:
        lines = [f"[{a}] {b}" for a, b in rows]
    else:
        lines = [f"<{a}>{b}</{a}>" for a, b in rows]
    return "\n".join([_capital(tool.wish) + rng.choice((":", "", ".")), *lines])


def letter(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """A note with a greeting and a name below."""
    body = rng.choice((imperative, narrative, values_first, question))(rng, tool, items, how)
    top = rng.choice(("Dear helper,", "Hello,", "Hi there,", "To whom it may concern:", "Good morning,"))
    return f"{top}\n{body}\n{rng.choice(('Regards', 'Best', 'Thanks', 'Yours'))}, {values.person(rng)}"


def quiz(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """Questions with answers, or what somebody said."""
    kind = rng.random()
    if kind < 0.5:
        told = " ".join([f"{_capital(label(p, how))}? {_capital(said(v, how))}." if isinstance(v, bool)
                         else f"{_capital(label(p, how))}? {said(v, how)}." for p, v in items])  # fmt: skip
        return f"{_capital(tool.wish)}. {told}"
    who = values.person(rng)
    parts = joined(rng, [f"{label(p, how)} {said(v, how)}" for p, v in items])
    return rng.choice((f"{who} wants to {tool.wish}, {parts}.", f"{who} said: {tool.wish}, {parts}.",
                       f"For {who}: {tool.wish}, {parts}.",
                       f"{who} needs someone to {tool.wish}: {parts}"))  # fmt: skip


def mixed(rng: Draw, tool: Tool, items: Items, how: Style) -> str:
    """Some arguments in one way and the rest in another."""
    cut = rng.randint(1, max(1, len(items) - 1))
    made = rng.choice((imperative, question, named, values_first, narrative))(rng, tool, items[:cut], how)
    form = rng.choice(
        (
            "The {l}: {v}.",
            "{l} is {v}.",
            "{l} = {v}",
            "Also, {l} {v}.",
            "And the {l} should be {v}.",
            "{l}: {v}",
        )
    )
    rest = [form.replace("{l}", label(p, how)).replace("{v}", said(v, how)) for p, v in items[cut:]]
    return rng.choice((" ", "\n")).join([made, *rest])


Family = Callable[[Draw, Tool, Items, Style], str]
FAMILIES: tuple[tuple[str, Family, int], ...] = (
    ("imperative", imperative, 7),
    ("question", question, 4),
    ("block", block, 2),
    ("bullets", bullets, 2),
    ("narrative", narrative, 4),
    ("named", named, 4),
    ("code", code, 1),
    ("dumped", dumped, 1),
    ("values first", values_first, 3),
    ("telegram", telegram, 3),
    ("table", table, 1),
    ("letter", letter, 1),
    ("quiz", quiz, 2),
    ("mixed", mixed, 3),
)
_DECK = tuple((name, family) for name, family, weight in FAMILIES for _ in range(weight))
SENTENCES = frozenset(("imperative", "question", "narrative", "named", "values first", "quiz", "mixed"))
"""Families that words around them do not disturb."""
_SPOKEN = tuple(entry for entry in _DECK if entry[0] in SENTENCES or entry[0] == "telegram")


def worded(rng: Draw, wish: str, others: Sequence[Tool]) -> str:
    """Other words for what a tool does, as long as no other tool could be meant."""
    verb, the, thing = wish.partition(" the ")
    if not the:
        return wish
    kind = rng.random()
    if kind < 0.35:
        return f"{verb} {rng.choice(('a', 'my', 'our', 'this', 'one', 'some', 'that'))} {thing}"
    if kind < 0.45:
        return f"{verb} {thing}"
    if kind < 0.6 and not any(word in tool.wish.split() for tool in others for word in thing.split()):
        forms = ("have the {}", "do the {}", "take care of the {}", "handle my {}", "get the {} done",
        "see to the {}",
                 "arrange a {}", "have this {}")  # fmt: skip
        return rng.choice(forms).replace("{}", thing)
    return wish


def request(rng: Draw, tool: Tool, given: dict[str, Any], others: Sequence[Tool] = ()) -> tuple[str, str]:
    """Ask for a call.

    Args:
        rng: source of all choices.
        tool: the tool meant.
        others: further tools on offer, which must not be meant.
        given: argument name -> value, or a reference to one; all are told, in this order.

    Returns:
        The name of the family and the request.
    """
    items = [(tool.parameter(name), value) for name, value in given.items()]
    pointing = any(isinstance(value, Reference) for value in given.values())
    name, family = rng.choice(_SPOKEN if pointing else _DECK)
    how = style(rng)
    made = family(rng, replace(tool, wish=worded(rng, tool.wish, others)), items, how)
    if name in SENTENCES:
        if rng.random() < 0.04 * rng.difficulty and not pointing:
            made = _corrected(rng, made, items, how)
        made = _surrounded(rng, made)
    return name, made


def _corrected(rng: Draw, made: str, items: Items, how: Style) -> str:
    """A wrong value first, taken back in the next sentence."""
    p, right = rng.choice(items)
    if isinstance(right, bool):
        return made
    wrong = p.make(rng)
    right_said, wrong_said = said(right, how), said(wrong, how)
    if made.count(right_said) != 1 or right_said in wrong_said or wrong_said in made:
        return made
    form = rng.choice(
        (
            "No, {l} {v}.",
            "Sorry, I meant {v} as {l}.",
            "Correction: {l} is {v}.",
            "Wait, {v} for {l}, not {w}.",
        )
    )
    fixed = form.replace("{l}", label(p, how)).replace("{w}", wrong_said).replace("{v}", right_said)
    return f"{made.replace(right_said, wrong_said)} {fixed}"


def _surrounded(rng: Draw, made: str) -> str:
    if rng.random() < 0.13 * rng.difficulty:
        made = f"{noise(rng)} {made}"
    if rng.random() < 0.06 * rng.difficulty:
        made = f"{made} {noise(rng)}"
    closing = rng.choice(CLOSINGS)
    # A value at the very end must not run into the words after it.
    return made + closing if made[-1] in ".!?" or not closing else f"{made}.{closing}"


def noise(rng: Draw) -> str:
    """A sentence that has nothing to do with the request."""
    return (
        rng.choice(NOISE)
        .replace("{a}", values.word(rng))
        .replace("{b}", values.word(rng))
        .replace("{n}", values.person(rng))
        .replace("{i}", str(rng.randint(2, 99)))
        .replace("{d}", values.date(rng))
    )


def _opened(rng: Draw, wish: str) -> str:
    return rng.choice(OPENINGS) + wish


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
