"""Learning nano's vocabulary: byte-level BPE merges, written as ranks that `gossamer.text` reads."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable

from gossamer.text import specials
from gossamer.text.pattern import split_pattern
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.document import Document
from gossamer.train.errors import TrainError

DIGITS = 1


def learn(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Learn `vocab_size` - 64 ranks (256 bytes and the merges in order of learning) from texts.

    Raises:
        TrainError: the texts hold too few different pairs for that many merges.
    """
    from tokenizers import Regex, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Learner

    num_ranks = vocab_size - specials.SMALL_SLOTS
    learner = Learner(models.BPE())
    split = pre_tokenizers.Split(Regex(split_pattern(DIGITS)), behavior="isolated")
    learner.pre_tokenizer = pre_tokenizers.Sequence(  # pyrefly: ignore
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=num_ranks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    learner.train_from_iterator(texts, trainer)
    ordered = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    if len(ordered) != num_ranks:
        raise TrainError(f"the texts give {len(ordered)} ranks, not {num_ranks}; use more text")
    to_byte = _bytes_of_characters()
    ranks = {bytes((byte,)): byte for byte in range(256)}
    for token, _ in ordered:
        raw = bytes(to_byte[character] for character in token)
        if len(raw) > 1:
            ranks[raw] = len(ranks)
    return Tokenizer(ranks, specials=specials.small(num_ranks), digits=DIGITS, source="nano")


def balanced(documents: list[Document], chars: int) -> list[str]:
    """About `chars` characters of every category: the same fraction of each of its documents."""
    totals: Counter[str] = Counter()
    for document in documents:
        totals[document.category] += len(document.text)
    return [d.text[: int(len(d.text) * min(1.0, chars / totals[d.category]))] for d in documents]


NOUNS = (
    "user",
    "order",
    "file",
    "message",
    "event",
    "city",
    "product",
    "account",
    "task",
    "report",
    "image",
    "price",
    "page",
    "group",
)
VERBS = (
    "get",
    "list",
    "create",
    "update",
    "delete",
    "search",
    "send",
    "find",
    "read",
    "write",
    "book",
    "cancel",
    "convert",
    "check",
)
SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object")


def schemas(count: int, seed: int = 3) -> list[str]:
    """Made-up function schemas and calls in JSON, so that the vocabulary knows their words and brackets."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        noun = draw.choice(NOUNS)
        names = [f"{noun}_id", *draw.sample(NOUNS, draw.randint(1, 3))]
        fields = {
            n: {"type": draw.choice(SCHEMA_TYPES), "description": f"The {n} of the {noun}."} for n in names
        }
        parameters = {"type": "object", "properties": fields, "required": names[:1]}
        name = f"{draw.choice(VERBS)}_{noun}"
        function = {"name": name, "description": f"Work on one {noun}.", "parameters": parameters}
        call = {"name": name, "arguments": {n: draw.choice(["a", 7, 2.5, True, None, ["b"]]) for n in names}}
        for value in ({"type": "function", "function": function}, call):
            texts.append(json.dumps(value, separators=draw.choice([(",", ":"), (", ", ": ")])))
    return texts


def _bytes_of_characters() -> dict[str, int]:
    """The byte behind each character of the byte-level alphabet: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(others)}
