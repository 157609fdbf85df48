"""Rows: repeatable by number, never a target on what the model did not say."""

import numpy as np
import pytest

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.corpus import Document
from gossamer.train.dialogue.generate import Generator
from gossamer.train.drill import Drills
from gossamer.train.streams import CopyRows, DialogueRows, DrillRows, MixedRows, TextRows, encode_corpus

LENGTH = 1024


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.bytes_only()


def test_dialogue_rows_ask_only_for_generated_tokens(tokenizer):
    generator = Generator(3)
    rows = DialogueRows(generator, tokenizer, 4096)
    ids, targets, _ = rows.row(0)
    asked = targets >= 0
    assert asked.any()
    assert (targets[asked[:]] == np.append(ids[1:], 0)[asked])[:-1].all()
    rendered = generator.dialogue(0).render(tokenizer)
    assert tuple(ids[: len(rendered.ids)]) == rendered.ids
    assert asked[: len(rendered.ids) - 1].tolist() == list(rendered.generated[1:])


def test_whole_dialogue_rows_ask_for_everything_but_padding(tokenizer):
    ids, targets, _ = DialogueRows(Generator(3), tokenizer, LENGTH, everything=True).row(1)
    pad = tokenizer.special(specials.PAD)
    assert ((targets >= 0) == (np.append(ids[1:], targets[-1]) != pad)).all()


@pytest.mark.parametrize("number", [0, 7, 5000])
def test_rows_depend_on_their_number_alone(tmp_path, tokenizer, number):
    texts = [
        Document(package="p", category=c, path=c, text=f"{c} text, all of it. " * 900, held_out=False)
        for c in ("technical", "prose", "python")
    ]
    encode_corpus(texts, tokenizer, tmp_path)
    shares = {"technical": 0.5, "prose": 0.3, "python": 0.2}

    def build():
        text = TextRows(tmp_path, shares, LENGTH, 5)
        dialogues = DialogueRows(Generator(5), tokenizer, LENGTH)
        drills = DrillRows(Drills(5), tokenizer, LENGTH)
        return MixedRows({"text": (text, 0.4), "dialogue": (dialogues, 0.4), "drill": (drills, 0.2)}, 5)

    one = build()
    one.row(3)
    first, second = one.row(number), build().row(number)
    assert first[0] == second[0]
    for a, b in zip(first[1], second[1], strict=True):
        assert (a == b).all()
        assert len(a) == LENGTH


def test_of_drills_only_what_is_told_is_asked(tokenizer):
    drills = Drills(5)
    ids, targets, _ = DrillRows(drills, tokenizer, LENGTH).row(0)
    at, asked = 0, []
    for text, told in drills.pieces(0):
        own = len(tokenizer.encode(text))
        asked += range(at, at + own) if told else ()
        at += own
    asked = [place for place in asked if 0 < place < LENGTH]
    assert asked
    assert [place + 1 for place in np.flatnonzero(targets[: at - 1] >= 0) if place + 1 < LENGTH] == asked
    assert all(targets[place - 1] == ids[place] for place in asked)


def test_kinds_follow_the_shares_and_name_their_rows(tmp_path, tokenizer):
    drills = DrillRows(Drills(5), tokenizer, 64)
    dialogues = DialogueRows(Generator(5), tokenizer, 64)
    rows = MixedRows({"drill": (drills, 3.0), "dialogue": (dialogues, 1.0), "none": (dialogues, 0.0)}, 5)
    batch = rows.batch(0, 120)
    assert set(batch.kinds) == {"drill", "dialogue"}
    assert 0.6 < batch.kinds.count("drill") / 120 < 0.9
    number = batch.kinds.index("drill")
    assert (batch.ids[number] == drills.row(number).ids).all()


def test_text_rows_are_consecutive_pieces_with_the_next_token_as_target(tmp_path, tokenizer):
    text = "".join(chr(97 + i % 26) for i in range(5000))
    encode_corpus(
        [Document(package="p", category="prose", path="x", text=text, held_out=False)], tokenizer, tmp_path
    )
    ids, targets, _ = TextRows(tmp_path, {"prose": 1.0}, 64, 1).row(2)
    assert (ids[1:] == targets[:-1]).all()
    assert tokenizer.decode(ids.tolist()) in text


def test_held_out_text_is_kept_apart(tmp_path, tokenizer):
    documents = [
        Document(package="p", category="prose", path="a", text="seen " * 50, held_out=False),
        Document(package="p", category="prose", path="b", text="unseen " * 50, held_out=True),
    ]
    encode_corpus(documents, tokenizer, tmp_path)
    assert "unseen" not in tokenizer.decode(np.load(tmp_path / "train-prose.npy").tolist())
    assert "unseen" in tokenizer.decode(np.load(tmp_path / "held_out-prose.npy").tolist())


@pytest.mark.parametrize("number", [0, 3, 900])
def test_copy_rows_ask_only_for_what_an_earlier_place_tells(tmp_path, tokenizer, number):
    text = Document(package="p", category="prose", path="a", text="some words " * 900, held_out=False)
    encode_corpus([text], tokenizer, tmp_path)
    rows = CopyRows(tmp_path, LENGTH, 5, tokenizer.num_ranks)
    ids, targets, _ = rows.row(number)
    assert len(ids) == len(targets) == LENGTH
    assert (targets >= 0).mean() > 0.1
    seen: set[tuple[int, int]] = set()
    for at in range(LENGTH - 1):
        following = (int(ids[at]), int(ids[at + 1]))
        if targets[at] >= 0:
            assert following[1] == targets[at]
            assert following in seen
        seen.add(following)
    again = CopyRows(tmp_path, LENGTH, 5, tokenizer.num_ranks).row(number)
    assert (again.ids == ids).all()
    assert (again.targets == targets).all()
    assert ids.max() < tokenizer.num_ranks
