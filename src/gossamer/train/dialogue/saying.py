"""How a request writes single values and the names of arguments."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from gossamer.train.dialogue import values
from gossamer.train.dialogue.schema import Parameter, spoken
from gossamer.train.dialogue.values import Draw

BARE = re.compile(r"[\w@./:+#-]*[\w/](?: [\w@./:+#-]*[\w/]){0,4}")
QUOTES = ('""', "''", "``", "“”", "«»", "「」", "[]", "<>")
BOOLEANS = (
    ("true", "false"),
    ("yes", "no"),
    ("on", "off"),
    ("enabled", "disabled"),
    ("True", "False"),
    ("y", "n"),
)
NUMBER_WORDS = values.listed("zero one two three four five six seven eight nine ten eleven twelve")


class Reference(str):
    """Words that stand for a value told elsewhere, such as "the number it returned"."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class Style:
    """What stays the same within one request."""

    quotes: str
    """Empty: quote only what needs it."""
    label: str
    """name, words or about."""
    booleans: tuple[str, str]
    lists: str
    objects: str
    number_words: bool


def style(rng: Draw) -> Style:
    """Choose one."""
    return Style(
        quotes=""
        if rng.random() < 0.5
        else rng.choice(QUOTES[:6])
        if rng.random() < 0.4
        else rng.choice(QUOTES[:3]),
        label=rng.choice(("name", "words", "words", "about")),
        booleans=rng.choice(BOOLEANS),
        lists=rng.choice(("json", "and", "commas", "plus", "spaces")),
        objects=rng.choice(("json", "equals", "colons", "is")),
        number_words=rng.random() < 0.04,
    )


def label(p: Parameter, how: Style) -> str:
    """How the request calls an argument."""
    if how.label == "name":
        return p.name
    if how.label == "about" and p.about:
        made = p.about.rstrip(".")
        return made[4:] if made[:4] in ("The ", "the ") else made[:1].lower() + made[1:]
    return p.said[0]


def said(value: Any, how: Style, *, alone: bool = False) -> str:
    """A value as the request writes it.

    Args:
        value: the JSON value.
        how: style of the request.
        alone: nothing follows on the line, so a string needs no quotes.
    """
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, str):
        return value if alone and not how.quotes else _quoted(value, how)
    if isinstance(value, bool):
        return how.booleans[0 if value else 1]
    if isinstance(value, list):
        return _listed(value, how)
    if isinstance(value, dict):
        return _mapped(value, how)
    if how.number_words and isinstance(value, int) and 0 <= value <= 12:
        return NUMBER_WORDS[value]
    return json.dumps(value)


def _quoted(value: str, how: Style) -> str:
    if not how.quotes and BARE.fullmatch(value):
        return value
    for pair in (how.quotes, *QUOTES):
        if pair and pair[0] not in value and pair[1] not in value:
            return pair[0] + value + pair[1]
    return f"\n{value}\n"


def _listed(value: list, how: Style) -> str:
    parts = [item if isinstance(item, str) else json.dumps(item) for item in value]
    plain = all(BARE.fullmatch(part) for part in parts)
    if how.lists == "json" or not plain:
        return json.dumps(value, ensure_ascii=False)
    if how.lists == "and" and len(parts) > 1:
        return ", ".join(parts[:-1]) + " and " + parts[-1]
    if how.lists == "plus":
        return " + ".join(parts)
    if how.lists == "spaces" and not any(" " in part for part in parts):
        return "(" + " ".join(parts) + ")"
    return ", ".join(parts)


def _mapped(value: dict, how: Style) -> str:
    if how.objects == "json":
        return json.dumps(value, ensure_ascii=False)
    joint = {"equals": "=", "colons": ": ", "is": " is "}[how.objects]
    between = {"equals": ", ", "colons": "; ", "is": " and "}[how.objects]
    return between.join([f"{key}{joint}{spoken(item)}" for key, item in value.items()])


def fragment(rng: Draw, p: Parameter, value: Any, how: Style) -> str:
    """An argument as part of a sentence."""
    name = label(p, how)
    if isinstance(value, bool):
        if rng.random() < 0.4:
            return f"{rng.choice(('with', 'and with') if value else ('without', 'with no'))} {name}"
        return rng.choice(
            (f"{name} {said(value, how)}", f"with {name}: {said(value, how)}", f"{name} = {said(value, how)}")
        )
    if isinstance(value, list | dict) or not p.forms:
        return f"{rng.choice(('with', 'with the', 'using', 'for the'))} {name} {said(value, how)}"
    return rng.choice(p.forms).replace("{l}", name).replace("{v}", said(value, how))


def joined(rng: Draw, parts: list[str]) -> str:
    """Parts of a sentence, one after another."""
    if len(parts) == 1:
        return parts[0]
    kind = rng.random()
    if kind < 0.3:
        return ", ".join(parts[:-1]) + " and " + parts[-1]
    return (" " if kind < 0.5 else ", " if kind < 0.8 else " and ").join(parts)
