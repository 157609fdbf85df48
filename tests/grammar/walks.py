"""Walks through a grammar as a model without any training takes them."""

import random

import numpy as np

from gossamer.grammar.build import Builder
from gossamer.grammar.guide import Guide, History, Masks
from gossamer.grammar.vocabulary import Vocabulary

BYTES = Vocabulary([bytes([b]) for b in range(256)])
MASKS = Masks(BYTES)
# Tokens across every border that there is between parts of a JSON text, and across bytes of characters.
MERGED = Vocabulary(
    [bytes([b]) for b in range(256)]
    + [
        t.encode()
        for t in ('{"', '":', '": ', '","', '"}', '"},{"', "},", "[[", "]]", "[{", "}]", "], [", "{}", "[]")
    ]
    + [
        t.encode()
        for t in (
            "true",
            "null",
            "12",
            "00",
            "-1",
            ".5",
            "e1",
            "name",
            'me": "',
            "a",
            "ab",
            "é",
            "汉字",
            "\n  ",
        )
    ]
    + ["汉".encode()[:2], "é".encode()[1:] + b'"', b'\\"', b"\\u00"]
)
MERGED_MASKS = Masks(MERGED)


def guide(schema, masks=MASKS):
    builder = Builder(schema, masks.vocabulary)
    return Guide(builder.json(builder.root), masks)


def walk(guide, vocabulary, budget, rng, *, stop=0.3):
    """A random text of at most ``budget`` tokens, closed when the budget is as small as its cost."""
    cursor, place, history, said = guide.follow(), guide.start, None, []
    while True:
        left = budget - len(said)
        assert place.cost <= left
        mask = cursor.mask(history)
        if place.complete and (left == 0 or not mask.any() or rng.random() < stop):
            return b"".join(vocabulary.tokens[i] for i in said).decode()
        allowed = list(np.flatnonzero(mask))
        if place.cost == left:
            token = place.next_token()
            assert token in allowed
            allowed = [token]
        while True:
            token = int(rng.choice(allowed))
            after = place.step(vocabulary.tokens[token])
            # What llguidance allows, the tracker knows.
            assert after is not None, vocabulary.tokens[token]
            if after.cost <= left - 1:
                break
            allowed.remove(token)
            if place.complete and not allowed:
                return b"".join(vocabulary.tokens[i] for i in said).decode()
        place, said = after, [*said, token]
        history = History(token, history, len(said))


def rng_of(seed):
    return random.Random(seed)
