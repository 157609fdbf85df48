"""Held-out sets: exact size, whole books, no shared text."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.train import heldout, overlap
from gossamer.train.document import Document
from gossamer.train.errors import TrainError

WORDS = [f"w{i}" for i in range(500)]


def prose(seed: int, words: int = 400) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words)) + "\n"


def document(text: str, *, held_out: bool = False, path: str = "a", package: str = "p") -> Document:
    return Document(package=package, category="prose", path=path, text=text, held_out=held_out)


@given(st.text(max_size=60), st.integers(0, 80))
def test_a_cut_has_the_bytes_asked_for_and_begins_like_the_text(text, size):
    piece = heldout.cut(text, size)
    assert len(piece.encode()) == min(size, len(text.encode()))
    assert text.startswith(piece.rstrip("\n"))


def one_of_each_book(text_bytes: int = 700) -> list[Document]:
    found = []
    for name, books in heldout.BOOKS.items():
        for book in books:
            path = book.paths[0].replace("*", "x")
            text = "é" * (text_bytes // 2)
            found.append(Document(package=book.package, category=name, path=path, text=text, held_out=False))
    return [*found, document("training text", path="other")]


def test_every_set_has_exactly_its_size_and_books_never_go_to_training():
    documents = heldout.split_by_book(one_of_each_book(), size=1001)
    assert len(documents) == len(one_of_each_book())
    for name in heldout.SETS:
        assert sum(d.num_bytes for d in documents if d.category == name and d.held_out) == 1001
    assert [d.path for d in documents if not d.held_out] == ["other"]


def test_books_that_are_too_small_for_the_set_are_an_error():
    with pytest.raises(TrainError, match=r"lacks \d+ of its 1000000 bytes"):
        heldout.split_by_book(one_of_each_book())


def test_users_own_files_are_held_out_by_name_about_one_in_a_hundred():
    documents = heldout.split_by_name([document("x", path=f"doc{i}") for i in range(5000)])
    assert documents == heldout.split_by_name(documents)
    assert 20 < sum(d.held_out for d in documents) < 90


def test_sets_are_read_back_as_written(tmp_path):
    documents = [document("one\x85\u2028two", held_out=True), document("train", path="b")]
    heldout.save(documents, tmp_path)
    assert heldout.read(tmp_path) == {"prose": documents[:1]}
    with pytest.raises(TrainError, match="holds no heldout"):
        heldout.read(tmp_path / "absent")


def test_grams_are_equal_exactly_when_thirteen_words_are():
    grams = overlap.Grams()
    first = grams.of("A b c d e f g h i j k l m n")
    assert first.dtype == np.uint64
    assert len(first) == 2
    assert list(grams.of("x, a B c d-e f g h i j k l m"))[1:] == [first[0]]
    assert len(grams.of("only three words")) == 0
    assert len(set(grams.of("b a c d e f g h i j k l m").tolist()) & set(first.tolist())) == 0


def test_copies_and_documents_that_hold_held_out_text_are_dropped():
    secret = prose(1)
    documents = [
        document(secret, held_out=True),
        document(prose(2), path="first"),
        document(prose(2), path="same"),
        document(prose(2) + prose(3, 60), path="nearly the same"),
        document(prose(4) + secret[:300], path="leak"),
        document("", held_out=True, path="no room left"),
        document("too short for a gram", path="short"),
    ]
    assert overlap.clean(documents) == [0, 1, 6]
    assert overlap.report(documents)["prose"] > 0.1
    assert overlap.report([documents[0], documents[1]]) == {"prose": 0.0}


def test_a_phrase_that_many_documents_share_is_refused_when_it_makes_up_too_much():
    phrase = " ".join(f"common{i}" for i in range(14))
    held = document(phrase + " and a few other words that stand only here", held_out=True)
    training = [document(prose(i, 3000) + phrase, path=str(i)) for i in range(3)]
    with pytest.raises(TrainError, match="13-grams of the held-out prose set"):
        overlap.clean([held, *training])
