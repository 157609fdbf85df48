"""Drill documents: the same each time, of the promised length, and mostly told by what stands before."""

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.train import drill
from gossamer.train.dialogue.values import Draw
from gossamer.train.drill import Drills

CALL_WORDS = {"argument", "boolean", "number", "object", "string"}
WORDS = [f"{a}{b}{c}" for a in "bdfglm" for b in ("ar", "en", "ol") for c in ("t", "is", "us", "ap")]


def test_same_seed_and_number_same_text():
    assert Drills(3, WORDS).text(7) == Drills(3, WORDS).text(7)
    assert Drills(3, WORDS).text(7) != Drills(4, WORDS).text(7)
    assert Drills(3, WORDS).text(7) != Drills(3, WORDS).text(8)


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_documents_keep_to_their_length(difficulty):
    lengths = [len(Drills(1, WORDS, difficulty).text(i)) for i in range(200)]
    assert min(lengths) >= 500
    assert sum(lengths) / len(lengths) < 2400
    assert max(lengths) < 6000


def test_what_is_marked_is_told_by_what_stands_before():
    drills = Drills(1, WORDS)
    shares = []
    for index in range(60):
        pieces = drills.pieces(index)
        assert "".join(text for text, _ in pieces) == drills.text(index)
        shares.append(sum(len(text) for text, told in pieces if told) / len(drills.text(index)))
        before = ""
        for text, told in pieces:
            # Escapes write the same text in other letters; a call brings words of its own.
            words = re.findall(r"\w{6,}", text) if told and "\\" not in text + before else []
            assert all(word in before for word in words if word not in CALL_WORDS)
            before += text
    assert 0.3 < sum(shares) / len(shares) < 0.7


def test_most_of_a_document_can_be_told_by_looking_back():
    texts = [Drills(1, WORDS).text(i).encode() for i in range(60)]
    packed = sum(len(zlib.compress(text, 9)) for text in texts)
    assert packed < 0.6 * sum(map(len, texts))


@given(seed=st.integers(0, 10**9), size=st.integers(1, 24), number=st.integers(0, len(drill.EXERCISES) - 1))
def test_every_exercise_gives_text_of_any_size(seed, size, number):
    made = drill.EXERCISES[number](Draw(str(seed), WORDS), size)
    assert made.strip()
    made.encode("utf-8")
