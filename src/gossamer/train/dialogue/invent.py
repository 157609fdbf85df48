"""Tools nobody has seen: names, arguments and descriptions made of random words, one dialogue each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gossamer.train.dialogue import values
from gossamer.train.dialogue.schema import Parameter, Tool
from gossamer.train.dialogue.values import Draw, Maker

VERBS = values.listed(
    "get set list add remove update create find check run start stop sync open close load export "
    "import merge count rename tag archive publish restore scan verify reset lock move copy build"
)
KINDS: tuple[tuple[tuple[str, ...], Maker, tuple[str, ...]], ...] = (
    (("city", "place", "town", "location"), values.city, ("in {v}", "for {v}", "near {v}", "at {v}")),
    (("from_city", "origin", "source"), values.city, ("from {v}", "starting in {v}", "out of {v}")),
    (("to_city", "target", "destination"), values.city, ("to {v}", "into {v}", "towards {v}")),
    (("date", "day", "departure_date"), values.date, ("on {v}", "for {v}", "by {v}", "dated {v}")),
    (("time", "start", "start_time"), values.clock, ("at {v}", "from {v} on", "for {v}")),
    (("person", "contact", "name", "artist"), values.person, ("for {v}", "with {v}", "by {v}", "of {v}")),
    (("to", "recipient", "address"), values.email, ("to {v}", "for {v}", "via {v}")),
    (
        ("path", "file", "filename", "file_path"),
        values.path,
        ("in {v}", "the file {v}", "from {v}", "at {v}"),
    ),
    (
        ("id", "order_id", "number", "symbol"),
        values.identifier,
        ("number {v}", "{v}", "with the id {v}", "of {v}"),
    ),
    (
        ("title", "subject", "label", "summary"),
        values.phrase,
        ("called {v}", "titled {v}", "named {v}", "about {v}"),
    ),
    (("query", "terms", "text"), values.text, ("saying {v}", "that says {v}", "matching {v}", "for {v}")),
    (("page", "url"), values.url, ("at {v}", "from {v}", "behind {v}")),
)
"""Names that tell what the value is, its maker, and the words that go with it in a sentence."""
COUNTS = ("minutes", "count", "limit", "lines", "level", "seats", "people", "max_rows", "duration")
FLAGS = ("urgent", "force", "repeat", "loop", "important")
TEXT_FORMS = (
    "with {l} {v}",
    "with the {l} {v}",
    "{l} {v}",
    "with {v} as {l}",
    "using {v} as the {l}",
    "whose {l} is {v}",
)
COUNT_FORMS = (
    "with {v} {l}",
    "{v} {l}",
    "{l} {v}",
    "for {v} {l}",
    "with {l} {v}",
    "at {l} {v}",
    "up to {v} {l}",
)
ENUM_FORMS = ("{v}", "in {v}", "as {v}", "with {l} {v}", "{v} {l}", "{l} {v}", "in {v} {l}", "the {v} one")
ABOUT_FORMS = (
    "The {}",
    "Name of the {}",
    "{} to use",
    "The {} of the request",
    "A {}",
    "Which {}",
    "{}",
    "the {}",
    "{} (as given)",
    "Value for the {}",
    "{}.",
    "What the {} should be",
    "Sets the {}",
    "{} of the item",
)
RESULT_MAKERS: tuple[Maker, ...] = (
    values.word,
    values.integer,
    values.identifier,
    values.identifier,
    values.pseudo_word,
    values.decimal,
    values.phrase,
    values.person,
    values.city,
    values.date,
    values.path,
    values.mixed,
)


def joined(rng: Draw, words: list[str]) -> str:
    """Words as one name, in one of the usual cases."""
    kind = rng.random()
    if kind < 0.55:
        return "_".join(words)
    if kind < 0.75:
        return words[0] + "".join([w.capitalize() for w in words[1:]])
    if kind < 0.85:
        return "-".join(words)
    return "".join([w.capitalize() for w in words]) if kind < 0.9 else ".".join(words[::-1])


def opaque(rng: Draw) -> str:
    """A name that says nothing."""
    return rng.choice(
        (
            values.pseudo_word(rng),
            f"{values.pseudo_word(rng)}_{rng.randint(1, 9)}",
            f"{rng.choice('abcdefghijklmnpqrstuvwxyz')}{rng.randint(1, 99)}",
        )
    )


def tool(rng: Draw, like: Tool | None = None, need: str = "") -> Tool:
    """A tool of random words.

    Args:
        rng: source of all choices.
        like: a tool to share a word with, so that the two can be mixed up.
        need: type, string or integer, of a first argument that it must require.
    """
    verb = rng.choice(VERBS) if rng.random() < 0.55 else values.ascii_word(rng)
    noun = [values.ascii_word(rng) for _ in range(1 + (rng.random() < 0.18))]
    if like is not None and " the " in like.wish and "{" not in like.wish:
        old_verb, old_noun = like.wish.split(" the ", 1)
        if rng.random() < 0.5:
            verb = old_verb
        elif verb != old_verb:
            noun = old_noun.split()
    hidden = rng.random() < 0.06 * rng.difficulty
    name = opaque(rng) if hidden else joined(rng, [verb, *noun])
    if rng.random() < 0.08:
        name = f"{values.ascii_word(rng)}{rng.choice(('__', '.', '/', ':'))}{name}"
    thing = " ".join(noun)
    parameters = _parameters(rng, rng.upto(4), need)
    about = "" if rng.random() < 0.15 and not hidden else _about(rng, verb, thing, parameters)
    fields = {values.name(rng): rng.choice(RESULT_MAKERS) for _ in range(rng.choice((1, 1, 2, 2, 3)))}
    return Tool(
        name=name,
        about=about,
        wish=f"{verb} the {thing}",
        parameters=parameters,
        results=tuple(fields.items()),
        group=f"{verb} {thing}",
    )


def _about(rng: Draw, verb: str, thing: str, parameters: tuple[Parameter, ...]) -> str:
    label = rng.choice(parameters).said[0]
    made = rng.choice(
        (
            f"{verb} the {thing}",
            f"{verb} a {thing}",
            f"{verb} {thing}",
            f"{verb}s a {thing}",
            f"{verb} the {thing} by {label}",
            f"{verb} one {thing} with its {label}",
            f"{thing}: {verb}",
            f"tool to {verb} the {thing}",
            f"use this to {verb} a {thing}",
            f"{verb} the {thing} of a {values.word(rng)}",
        )
    )
    return (made[:1].upper() + made[1:] if rng.random() < 0.7 else made) + rng.choice(("", "", "."))


def _parameters(rng: Draw, count: int, need: str) -> tuple[Parameter, ...]:
    described = rng.random() < 0.35
    found: dict[str, Parameter] = {}
    if need:
        first = _required((_integer if need == "integer" else _string)(rng, described))
        found[first.name] = first
    said = {label for p in found.values() for label in p.said}
    while len(found) < count:
        made = rng.choice(PARAMETERS)(rng, described)
        # Two arguments with one label could not be told apart in a request.
        if made.name not in found and not said.intersection(made.said):
            found[made.name] = made
            said.update(made.said)
    made_all = list(found.values())
    if all(not p.required for p in made_all):
        made_all[0] = _required(made_all[0])
    return tuple(made_all)


def _required(p: Parameter) -> Parameter:
    return replace(p, required=True)


def _named(
    rng: Draw,
    kind: str,
    make: Maker,
    described: bool,
    *,
    words: list[str] | None = None,
    affix: str = "{}",
    forms: tuple[str, ...] = TEXT_FORMS,
    enum: tuple[str, ...] = (),
    items: str = "",
) -> Parameter:
    """A parameter called by its words in one of the usual cases, or opaque with a description."""
    words = words or values.name(rng).split("_")
    label = " ".join(words)
    about = rng.choice(ABOUT_FORMS).replace("{}", label) if described and rng.random() < 0.85 else ""
    said = (label,)
    name = affix.replace("{}", "_".join(words))
    if rng.random() < 0.15 and "_" in name:
        first, *rest = name.split("_")
        name = first + "".join([w.capitalize() for w in rest])
    if described and about and rng.random() < 0.25:
        # The description alone says what it is: other words than the name, or a name without meaning.
        name = opaque(rng) if rng.random() < 0.5 else values.name(rng)
    return Parameter(
        name=name,
        type=kind,
        make=make,
        said=said,
        forms=forms,
        required=rng.random() < 0.75,
        enum=enum,
        items=items,
        about=about,
    )


def _string(rng: Draw, described: bool) -> Parameter:
    make = values.hard if rng.random() < 0.55 else values.text
    return _named(rng, "string", make, described)


def _kind(rng: Draw, described: bool) -> Parameter:
    names, make, forms = rng.choice(KINDS)
    words = rng.choice(names).split("_")
    if rng.random() < 0.3:
        # "harbour city", "start date": the label must be said, because the form alone is not unique.
        words, forms = [values.ascii_word(rng), words[-1]], TEXT_FORMS
    return _named(rng, "string", make, described, words=words, forms=(*forms, TEXT_FORMS[0]))


def _integer(rng: Draw, described: bool) -> Parameter:
    words = rng.choice(COUNTS).split("_") if rng.random() < 0.3 else None
    affix = rng.choice(("{}", "{}", "{}s", "num_{}", "{}_count", "max_{}")) if words is None else "{}"
    kind = "integer" if rng.random() < 0.75 else "number"
    return _named(rng, kind, values.integer, described, words=words, affix=affix, forms=COUNT_FORMS)


def _number(rng: Draw, described: bool) -> Parameter:
    return _named(rng, "number", values.decimal, described, forms=COUNT_FORMS)


def _boolean(rng: Draw, described: bool) -> Parameter:
    words = [rng.choice(FLAGS)] if rng.random() < 0.3 else None
    affix = rng.choice(("{}", "{}", "is_{}", "with_{}", "{}_enabled", "use_{}"))
    return _named(rng, "boolean", values.boolean, described, words=words, affix=affix, forms=())


def _enum(rng: Draw, described: bool) -> Parameter:
    maker = rng.choice((values.ascii_word, values.ascii_word, values.word, values.pseudo_word))
    options = tuple(dict.fromkeys(maker(rng) for _ in range(rng.choice((2, 3, 3, 4)))))
    if rng.random() < 0.2:
        options = tuple(dict.fromkeys(option.upper()[:3] for option in options))
    make = lambda r: r.choice(options)  # noqa: E731
    return _named(rng, "string", make, described, forms=ENUM_FORMS, enum=options)


def _array(rng: Draw, described: bool) -> Parameter:
    maker, items = rng.choice(
        (
            (values.word, "string"),
            (values.ascii_word, "string"),
            (values.person, "string"),
            (values.city, "string"),
            (values.identifier, "string"),
            (values.pseudo_word, "string"),
            (values.integer, "integer"),
            (values.integer, "number"),
            (values.decimal, "number"),
        )
    )
    make = lambda r: [maker(r) for _ in range(r.choice((1, 2, 2, 3, 3, 4)))]  # noqa: E731
    affix = rng.choice(("{}s", "{}", "{}_list", "{}s"))
    return _named(rng, "array", make, described, affix=affix, items=items if rng.random() < 0.6 else "")


def _object(rng: Draw, described: bool) -> Parameter:
    words = ["filter"] if rng.random() < 0.15 else None
    return _named(rng, "object", values.mapping, described, words=words)


PARAMETERS: tuple[Callable[[Draw, bool], Parameter], ...] = (
    *(_string,) * 6,
    *(_kind,) * 2,
    *(_integer,) * 3,
    *(_number,) * 2,
    *(_boolean,) * 3,
    *(_enum,) * 3,
    *(_array,) * 2,
    *(_object,) * 2,
)
