"""Text rows that teach copying and look-up: what a tool call is made of, before any dialogue is seen.

Every document is a few exercises, the first ones short. Each writes something drawn at random and then
writes it again, whole or in part, in the same order or another; the distance grows from a few tokens to about
700.  What can be told only by looking back is marked, so that nothing else need be learned.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence

from gossamer.train.dialogue import values
from gossamer.train.dialogue.values import Draw

Pairs = dict[str, object]

TOLD, END = "\x02", "\x03"
"""Around what earlier text tells; no text that is drawn holds these characters."""
TARGET_CHARS = (500, 900, 1500, 2200)
"""Lengths of a document; a character is about half a token here, values being hard to merge."""
STRINGS: tuple[values.Maker, ...] = (
    values.word,
    values.word,
    values.pseudo_word,
    values.phrase,
    values.mixed,
    values.identifier,
    values.hard,
    values.hard,
)
OTHERS: tuple[values.Maker, ...] = (
    values.integer,
    values.integer,
    values.decimal,
    values.boolean,
    values.array,
    values.mapping,
)
RULES = ("", "\n", "---\n", "=>\n", "again:\n", "copy:\n", "so\n", "###\n")
SEPARATORS = (" ", " ", ", ", "\n", " | ", "; ", " / ")
FORMS = (
    "{k} = {v}",
    "{k}: {v}",
    "{k} -> {v}",
    "{k} {v}",
    "{k}={v}",
    "- {k}: {v}",
    '{k}="{v}"',
    "<{k}>{v}</{k}>",
)
QUESTIONS = (
    ("{k}? {v}", "{v} is {k}"),
    ("{k}: {v}", "{v}: {k}"),
    ("what is {k}? {v}", "which is {v}? {k}"),
    ("get {k} -> {v}", "find {v} -> {k}"),
)


class Drills:
    """Drill documents by number; the same seed and number always give the same text.

    Args:
        seed: chooses the whole sequence.
        words: the words to draw from; a large list keeps any of them from being learned by heart.
        difficulty: 0 (few items, plain values) to 1.
    """

    def __init__(self, seed: int, words: Sequence[str] = values.WORDS, difficulty: float = 1.0):
        self.seed = seed
        self.words = words
        self.difficulty = difficulty

    def text(self, index: int) -> str:
        """Document number `index`: 500 to 3,000 characters."""
        return _unmarked(self._marked(index))

    def pieces(self, index: int) -> list[tuple[str, bool]]:
        """The same in pieces, each with whether earlier ones tell it."""
        found = []
        for part in self._marked(index).split(TOLD):
            told, _, free = part.rpartition(END)
            found += [(told, True), (free, False)]
        return [(text, told) for text, told in found if text]

    def _marked(self, index: int) -> str:
        rng = Draw(f"{self.seed}/drill/{index}", self.words, self.difficulty)
        room = rng.choice(TARGET_CHARS)
        parts: list[str] = []
        length, size = 0, 2
        while length < room:
            part = rng.choice(EXERCISES)(rng, size)
            parts.append(part)
            length += len(_unmarked(part))
            size = min(size + rng.randint(1, 3), 4 + round(20 * self.difficulty))
        return "\n\n".join(parts) + "\n"


def repeated(rng: Draw, size: int) -> str:
    """Items of one kind or of many, then the same again, once to three times."""
    maker = rng.choice(STRINGS)
    makers = STRINGS if rng.random() < 0.3 else (maker,)
    joint = rng.choice(SEPARATORS)
    line = joint.join([str(rng.choice(makers)(rng)) for _ in range(size)])
    again = rng.choice((1, 1, 2)) if len(line) < 400 else 1
    return f"\n{rng.choice(RULES)}".join([line] + [_told(line)] * again)


def characters(rng: Draw, size: int) -> str:
    """A random string of characters, then the same again."""
    line = "".join([rng.choice(values.ALPHABET + "-_/. ") for _ in range(3 + 2 * size)]).strip()
    return f"\n{rng.choice(RULES)}".join([line] + [_told(line)] * rng.choice((1, 1, 2)))


def pieces(rng: Draw, size: int) -> str:
    """Items of a list said again one by one in another order, each after the one that stood before it."""
    items = list(dict.fromkeys(str(rng.choice(STRINGS)(rng)) for _ in range(size + 1)))
    follow = list(itertools.pairwise(items))
    rng.shuffle(follow)
    lines = [f"after {a}: {_told(b)}" for a, b in follow[: 1 + size // 2]]
    return "\n".join([rng.choice((", ", "\n", " ; ")).join(items), *lines])


def looked_up(rng: Draw, size: int) -> str:
    """A list of keys with values, then questions for some of them in another order, both ways."""
    pairs = _pairs(rng, size, plain=True)
    keys = list(pairs)
    rng.shuffle(keys)
    forward, backward = rng.choice(QUESTIONS)
    reverse = rng.random() < 0.25 and len({str(v) for v in pairs.values()}) == len(pairs)
    form = backward if reverse else forward
    asked = [_asked(form, key, pairs[key], reverse=reverse) for key in keys[: 1 + 2 * size // 3]]
    return "\n".join([_block(rng, pairs), rng.choice(RULES) + asked[0], *asked[1:]])


def rewritten(rng: Draw, size: int) -> str:
    """The same keys and values in two or three notations, sometimes in another order."""
    pairs = _pairs(rng, max(1, min(size, 9)), plain=False)
    written = []
    for _ in range(rng.choice((2, 2, 3))):
        keys = list(pairs)
        if rng.random() < 0.4:
            keys = sorted(keys) if rng.random() < 0.5 else rng.sample(keys, len(keys))
        own = {key: pairs[key] for key in keys}
        kind = rng.random()
        made = _json(rng, own) if kind < 0.45 else _block(rng, own)
        written.append(_told(made) if written else made)
    return f"\n{rng.choice(RULES)}".join(written)


def called(rng: Draw, size: int) -> str:
    """A sentence that names keys and values, then each as one block of a call."""
    pairs = _pairs(rng, max(1, min(size, 6)), plain=False)
    form = rng.choice(("{k} {v}", "the {k} is {v}", "{v} as {k}", "{k} set to {v}", "{v} for the {k}"))
    keys = rng.sample(list(pairs), len(pairs))
    said = rng.choice((", ", " and ", "; ")).join([_fill(form, key, pairs[key]) for key in keys])
    tool = f"{values.ascii_word(rng)}_{values.ascii_word(rng)}"
    block = [f'argument key="{key}" {_kind(pairs[key])}: {_shown(pairs[key])}' for key in keys]
    return "\n".join(
        [
            f"{rng.choice(('use', 'call', 'run'))} {tool} with {said}",
            _told("\n".join([f"call {tool}", *block])),
        ]
    )


def chosen(rng: Draw, size: int) -> str:
    """Several small records; one is asked for by its name and written out whole."""
    records = {values.name(rng): _pairs(rng, rng.randint(1, 3), plain=True) for _ in range(max(2, size // 2))}
    lines = [f"{name}: {_json(rng, record)}" for name, record in records.items()]
    wanted = rng.sample(list(records), 1 + len(records) // 2)
    asked = [f"{name}\n{_told(_block(rng, records[name]))}" for name in wanted]
    return "\n".join([*lines, *asked])


def escapes(rng: Draw, size: int) -> str:
    """Hard strings beside their JSON form, with or without unicode escapes, both ways."""
    lines = []
    for _ in range(max(1, size // 2)):
        raw = rng.choice((values.quoted, values.escaped, values.foreign, values.path, values.hard))(rng)
        form = json.dumps(raw, ensure_ascii=rng.random() < 0.3)
        first, second = (raw, form) if rng.random() < 0.5 else (form, raw)
        lines.append(f"{first}  {_told(second)}")
    return "\n".join(lines)


def planted(rng: Draw, size: int) -> str:
    """Facts among sentences without meaning, asked for at the end."""
    facts = _pairs(rng, 1 + rng.randint(0, min(3, size)), plain=True)
    fact = rng.choice(("The {k} is {v}.", "Remember: {k} is {v}.", "{k} = {v}.", "{v} is the {k}."))
    lines = [_fill(fact, key, value) for key, value in facts.items()]
    for _ in range(size):
        length = rng.randint(3, 8)
        lines.insert(
            rng.randint(0, len(lines)), " ".join([rng.word() for _ in range(length)]).capitalize() + "."
        )
    ask = rng.choice(("What is the {k}? {v}", "{k}? {v}", "So the {k} is {v}", "The {k} was: {v}"))
    wanted = rng.sample(list(facts), rng.randint(1, len(facts)))
    return " ".join(lines) + "\n" + "\n".join([_asked(ask, key, facts[key]) for key in wanted])


EXERCISES: tuple[Callable[[Draw, int], str], ...] = (
    repeated,
    repeated,
    characters,
    pieces,
    looked_up,
    looked_up,
    looked_up,
    rewritten,
    rewritten,
    called,
    called,
    chosen,
    escapes,
    planted,
)


def _pairs(rng: Draw, size: int, *, plain: bool) -> Pairs:
    """Keys with values; `plain` leaves lists and objects out, and no two values are the same."""
    found: Pairs = {}
    seen: set[str] = set()
    for _ in range(size):
        others = OTHERS[:3] if plain else OTHERS
        value = rng.choice(STRINGS if rng.random() < 0.65 else others)(rng)
        key = values.name(rng) if rng.random() < 0.8 else values.pseudo_word(rng)
        if key not in found and str(value) not in seen:
            found[key] = value
            seen.add(str(value))
    return found


def _block(rng: Draw, pairs: Pairs) -> str:
    form = rng.choice(FORMS)
    return rng.choice(("\n", "\n", ", ", "; ")).join(
        [_fill(form, key, value) for key, value in pairs.items()]
    )


def _json(rng: Draw, pairs: Pairs) -> str:
    separators = rng.choice((None, (",", ":")))
    return json.dumps(pairs, ensure_ascii=False, separators=separators, indent=rng.choice((None, None, 1)))


def _fill(form: str, key: str, value: object) -> str:
    return form.replace("{k}", key).replace("{v}", _shown(value))


def _asked(form: str, key: str, value: object, *, reverse: bool = False) -> str:
    """A question with its answer, which earlier text tells: the value, or in reverse the key."""
    if reverse:
        return form.replace("{k}", _told(key)).replace("{v}", _shown(value))
    return form.replace("{k}", key).replace("{v}", _told(_shown(value)))


def _told(text: str) -> str:
    return f"{TOLD}{text}{END}"


def _unmarked(text: str) -> str:
    return text.replace(TOLD, "").replace(END, "")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[type, str] = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return kinds[type(value)]
