"""The book, the tower and the run: losses that fall, rows where they belong, a run that stops and goes on."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import gossamer
from gossamer.config import hf
from gossamer.images.rules import ImageRules, read_rules
from gossamer.kernels.vision_folder import open_tower
from gossamer.model.load import load
from gossamer.model.vision import Vision
from gossamer.text.specials import MEDIA_PAD
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.errors import TrainError
from gossamer.train.vision import export, learn, run
from gossamer.train.vision.book import DECISIVE_WEIGHT, Book, batch, embedded
from gossamer.train.vision.facts import KINDS, SLOTS, VALUES, draw_facts
from gossamer.train.vision.learn import Sight, book_loss, joint_loss, tower_loss
from numerics import assert_close

NANO = Path(gossamer.__file__).parent / "data" / "nano"


@pytest.fixture(scope="module")
def sight():
    rules = ImageRules(in_patch_limit=run.PATCH_LIMIT)
    return Sight(load(NANO, experts="dense"), Tokenizer.load(NANO), rules)


def small_tower(width):
    """A block of nano's tower."""
    return Vision(replace(run.nano_tower(width), num_layers=1), seed=3)


def test_the_books_rows_hold_their_facts():
    book = Book(64, 16, seed=0)
    rng = random.Random(1)
    facts = [draw_facts(rng, kind) for kind in KINDS for _ in range(4)]
    scores = book.scores(book.directions(facts, 15))
    for slot in SLOTS:
        for i, one in enumerate(facts):
            if slot in one:
                assert int(scores[slot][i].argmax()) == VALUES[slot].index(one[slot])
    assert book.directions(facts, 15).square().mean(-1).sqrt().allclose(torch.ones(len(facts), 15))


def test_dialogues_ask_for_the_answers_and_weigh_them(sight):
    rng = random.Random(0)
    drawn = sight.draw(rng, 4)
    dialogues = sight.dialogues(rng, drawn.facts, drawn.size, 2)
    assert int(dialogues.pads.sum()) == 4 * drawn.size.num_tokens
    tokenizer = sight.tokenizer
    for i, facts in enumerate(drawn.facts):
        asked = dialogues.targets[i]
        said = tokenizer.decode(asked[(asked >= 0) & (dialogues.weights[i] == DECISIVE_WEIGHT)].tolist())
        assert sum(value in said for value in facts.values()) >= min(2, len(facts))
        # A target is the token after its place.
        places = (asked >= 0).nonzero().flatten()
        assert (dialogues.ids[i, places + 1] == asked[places]).all()
    assert (dialogues.weights[dialogues.targets < 0] == 0).all()


def test_rows_go_to_the_pads_in_order(sight):
    rng = random.Random(0)
    drawn = sight.draw(rng, 2)
    dialogues = sight.dialogues(rng, drawn.facts, drawn.size, 1)
    width = sight.text.config.hidden_size
    rows = torch.arange(2.0 * drawn.size.num_tokens)[:, None].expand(-1, width)
    given = embedded(dialogues, sight.text.model.embed_tokens.weight, rows)
    assert given[dialogues.pads][:, 0].tolist() == list(range(2 * drawn.size.num_tokens))
    others = ~dialogues.pads
    table = sight.text.model.embed_tokens.weight
    torch.testing.assert_close(given[others], table[dialogues.ids[others]])


def test_kernels_and_torch_give_the_same_loss(sight, monkeypatch):
    rng = random.Random(0)
    facts = [draw_facts(rng, "screen"), draw_facts(rng, "word")]
    size = sight.draw(rng, 1).size
    dialogues = sight.dialogues(rng, facts, size, 2)
    book = Book(sight.text.config.hidden_size, 16, seed=0)
    found = []
    for fused in (True, False):
        monkeypatch.setattr(sight, "_fused", fused)
        rows = (book.directions(facts, size.num_tokens) * book.scale).flatten(0, 1)
        loss = sight.loss(dialogues, rows)
        found.append((loss.detach(), torch.autograd.grad(loss, book.entries)[0]))
    assert_close(found[0][0], found[1][0], ("model", "float32", "native"))
    assert_close(found[0][1], found[1][1], ("oracle", "float32", "model_gradients"))


def falls(parameters, loss, steps, rate):
    optimizer = torch.optim.Adam(parameters, lr=rate)
    first = None
    for _ in range(steps):
        now = loss()
        first = float(now.detach()) if first is None else first
        optimizer.zero_grad()
        now.backward()
        optimizer.step()
    return first, float(loss().detach())


def test_the_book_learns_to_be_read(sight):
    """One dialogue over and over: its rows lead the frozen network to the answers."""
    book = Book(sight.text.config.hidden_size, 16, seed=0)
    first, last = falls(
        book.parameters(), lambda: book_loss(sight, book, random.Random(4), 1, 1), steps=12, rate=0.03
    )
    assert last < 0.6 * first
    assert all(p.grad is None for p in sight.text.parameters())


def test_the_tower_learns_the_books_rows(sight):
    width = sight.text.config.hidden_size
    book, vision = Book(width, 16, seed=0), small_tower(width)
    drawn = sight.draw(random.Random(2), 8)
    first, last = falls(vision.parameters(), lambda: tower_loss(vision, book, drawn)[0], steps=25, rate=2e-3)
    assert last < 0.6 * first
    right = tower_loss(vision, book, drawn)[1]
    assert set(right) == set(SLOTS)
    assert sum(right.values()) / len(right) > 0.7


def test_the_text_network_teaches_the_tower(sight):
    vision = small_tower(sight.text.config.hidden_size)
    drawn = sight.draw(random.Random(2), 2)
    loss = joint_loss(sight, vision, drawn, random.Random(3), 1)
    loss.backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in vision.parameters())


@pytest.fixture
def quick(monkeypatch):
    """A tower of one block and small steps: what is tried is the run, not what it learns."""
    whole = run.nano_tower
    monkeypatch.setattr(run, "nano_tower", lambda width: replace(whole(width), num_layers=1))
    plan = run.VisionPlan
    monkeypatch.setattr(run, "VisionPlan", lambda **given: plan(**{**given, "pictures": 4, "dialogues": 2}))


def test_a_run_goes_through_its_phases_stops_and_goes_on(quick, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    trainer = run.open_run(folder, text=NANO, minutes=0.05, seed=1, threads=2)
    original = trainer._step

    def stopping(phase):
        original(phase)
        trainer.stop()

    monkeypatch.setattr(trainer, "_step", stopping)
    assert not trainer.run()
    with pytest.raises(TrainError, match="planned for"):
        run.open_run(folder, text=NANO, minutes=3, seed=1, threads=2)
    again = run.open_run(folder, text=NANO, minutes=None, seed=1, threads=2)
    assert again.progress == trainer.progress
    assert torch.equal(again.book.entries, trainer.book.entries)
    assert again.run()
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert list(dict.fromkeys(line["phase"] for line in lines)) == ["book", "tower", "joint"]
    assert all(steps >= 1 for steps in again.progress.steps)
    assert torch.equal(again.vision.mm_projector.post_norm.weight, again.book.scale)
    out = export.export(again, tmp_path / "model")
    assert out == tmp_path / "model" / "vision"
    assert json.loads((out / "training.json").read_text())["steps"]["book"] == again.progress.steps[0]


def test_a_run_without_its_time_is_refused(tmp_path):
    with pytest.raises(TrainError, match="--minutes"):
        run.open_run(tmp_path / "none", text=NANO, minutes=None, seed=1, threads=1)
    with pytest.raises(TrainError, match="above 0"):
        run.VisionPlan(text="x", minutes=0)


def test_an_exported_tower_computes_what_was_trained(sight, tmp_path):
    width = sight.text.config.hidden_size
    vision = small_tower(width)
    export.write_tower(vision, sight.rules, tmp_path / "vision")
    assert read_rules(tmp_path / "vision") == sight.rules
    network, rules = open_tower(tmp_path, hf.read(NANO))
    assert rules == sight.rules
    drawn = sight.draw(random.Random(5), 1)
    with torch.no_grad():
        for parameter in vision.parameters():
            parameter.copy_(parameter.bfloat16().float())
        want = vision(drawn.patches, drawn.size.rows, drawn.size.columns)[0]
    got = network.run(drawn.patches[0].numpy(), drawn.size.rows, drawn.size.columns)
    assert_close(torch.from_numpy(got), want, ("vision", "float32", "numpy"))


def test_the_whole_tower_of_nano_is_below_six_megabytes(sight, tmp_path):
    vision = Vision(run.nano_tower(sight.text.config.hidden_size), seed=0)
    export.write_tower(vision, sight.rules, tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 6_000_000


def test_pads_of_the_batch_are_the_vocabularys(sight):
    drawn = sight.draw(random.Random(0), 1)
    media = learn.Media(width=112, height=112, num_tokens=drawn.size.num_tokens)
    one = learn.dialogue(
        drawn.facts[0], media, sight.tokenizer, random.Random(1), slots=list(drawn.facts[0])[:1]
    )
    pad = sight.tokenizer.special(MEDIA_PAD)
    assert int(batch([one], pad).pads.sum()) == one.ids.count(pad) == drawn.size.num_tokens
