import json
import random

import pytest
import torch
from tests.model import small

from gossamer.cli import main
from gossamer.exam import filler, needle
from gossamer.exam.errors import ExamError
from gossamer.exam.words import WordSource
from gossamer.model import Transformer
from gossamer.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.bytes_only()


def planted(tokens=900, depths=needle.DEPTHS):
    rng = random.Random(4)
    return needle.plant(rng, TOKENIZER, filler.sentences(rng, WordSource()), tokens, depths)


def test_facts_stand_at_their_depths_and_the_length_is_kept():
    made = planted(tokens=6000)
    assert len({name for name, _ in made.facts}) == 5
    for depth, (name, code) in zip(needle.DEPTHS, made.facts, strict=True):
        line = f"The access code of {name} is {code}."
        assert made.text.count(line) == 1
        assert made.text.index(line) / len(made.text) == pytest.approx(depth, abs=0.05)
    for form in needle.FORMS:
        for ids in needle.prompts(made, form, TOKENIZER):
            assert 5500 < len(ids) < 6250


def test_only_the_right_code_counts():
    end = TOKENIZER.special("<|end_of_msg|>")
    close, open_, sep = (TOKENIZER.special(f"<|{n}|>") for n in ("close", "open", "sep"))

    def chat(text):
        head = [close, *TOKENIZER.encode("think"), sep, open_, *TOKENIZER.encode("response"), sep]
        return [*head, *TOKENIZER.encode(text), close, *TOKENIZER.encode("response"), sep, end]

    assert needle.is_found("chat", chat("It is 12345."), "12345", TOKENIZER)
    assert not needle.is_found("chat", chat("It is 12346."), "12345", TOKENIZER)
    assert not needle.is_found("chat", chat("It is 12345 or 99999."), "12345", TOKENIZER)
    assert not needle.is_found("chat", TOKENIZER.encode("12345"), "12345", TOKENIZER)  # only thought
    assert needle.is_found("completion", TOKENIZER.encode(" 12345. The"), "12345", TOKENIZER)
    assert not needle.is_found("completion", TOKENIZER.encode(" 123456"), "12345", TOKENIZER)
    assert not needle.is_found("completion", TOKENIZER.encode(" not 12345"), "12345", TOKENIZER)


def test_asking_from_the_state_equals_asking_from_the_start():
    model = Transformer(small.debug(), seed=3).eval()
    ids = torch.randint(0, 256, (150,)).tolist()
    fresh = model.new_cache(1)
    wanted = needle.answer(model, ids, fresh, -1, 6)
    cache = model.new_cache(1)
    needle.read(model, ids[:130], cache, block=40)
    for _ in range(2):
        assert needle.answer(model, ids[130:], cache, -1, 6) == wanted
    assert cache.length == 130


def test_lengths():
    assert needle.parse_length("8k") == 8192
    assert needle.parse_length("1000") == 1000
    for wrong in ("", "8m", "-1k", "10"):
        with pytest.raises(ExamError):
            needle.parse_length(wrong)


def test_filler_of_a_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"Sentence number {i}." for i in range(30)))
    some = filler.sentences_of(path, random.Random(1))
    assert len({next(some) for _ in range(60)}) == 30
    path.write_text("One. Two.")
    with pytest.raises(ExamError, match="at least 20"):
        filler.sentences_of(path, random.Random(1))


def test_json_of_the_command(capsys, monkeypatch):
    monkeypatch.setattr(needle, "MANY", 1)
    monkeypatch.setattr(needle, "MAX_ANSWER", {"chat": 3, "completion": 3})
    assert main.run(["eval-nano", "--model", "debug", "--context", "600", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert tree["schema"] == "gossamer.nano_context/1"
    assert [(r["tokens"], r["form"], r["found"]["total"]) for r in tree["results"]] == [
        (600, "chat", 5),
        (600, "completion", 5),
    ]
    assert main.run(["eval-nano", "--model", "debug", "--context", "lots"]) == 1
