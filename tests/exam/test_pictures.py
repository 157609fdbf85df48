"""The vision exam: pictures that show what they ask for, apart from those of training, and its counting."""

import ast
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import gossamer
from gossamer.config.model import VisionConfig
from gossamer.exam import picture_exam, pictures
from gossamer.exam.errors import ExamError
from gossamer.exam.picture_exam import Viewer, examine, is_right
from gossamer.exam.pictures import ANSWERS, ASKED, KINDS, PAPERS, SHADES, TYPEFACES, picture
from gossamer.images.rules import ImageRules
from gossamer.kernels.vision import VisionNetwork
from gossamer.model.load import load
from gossamer.model.vision import Vision
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.vision import canvas, facts

NANO = Path(gossamer.__file__).parent / "data" / "nano"


def test_a_picture_is_the_same_for_its_seed_and_number_and_others_differ():
    one, again = picture(3, 17), picture(3, 17)
    assert (one.slot, one.answer) == (again.slot, again.answer)
    np.testing.assert_array_equal(np.asarray(one.image), np.asarray(again.image))
    assert not np.array_equal(np.asarray(one.image), np.asarray(picture(4, 17).image))
    assert one.image.size == (112, 112)


def test_every_slot_is_asked_for_about_as_often_within_its_kind():
    shown = [picture(1, number) for number in range(200)]
    for kind, slots in KINDS.items():
        counts = [sum(p.kind == kind and p.slot == slot for p in shown) for slot in slots]
        assert sum(counts) == 50
        assert max(counts) - min(counts) <= 1
    assert all(p.answer in ANSWERS[p.slot] and p.question == ASKED[p.slot] for p in shown)
    # No answer that is always given does well.
    assert max(sum(p.answer == a for p in shown) for a in {p.answer for p in shown}) <= 30


def test_what_can_be_asked_is_all_that_is_shared():
    assert {slot: tuple(values) for slot, values in facts.VALUES.items()} == ANSWERS
    assert KINDS == facts.KINDS
    assert all(question in facts.QUESTIONS[slot] for slot, question in ASKED.items())


def test_typefaces_are_not_those_of_training():
    assert not set(TYPEFACES) & set(canvas.FONTS)


def test_shades_lie_outside_the_ranges_of_training():
    for name, shades in SHADES.items():
        for shade in shades:
            ranges = canvas.RANGES[name]
            inside = [low <= part <= high for part, (low, high) in zip(shade, ranges, strict=True)]
            assert not all(inside), (name, shade)


def test_backgrounds_are_none_that_training_draws():
    rng = random.Random(0)
    drawn = {canvas.paper(rng) for _ in range(20_000)}
    assert not drawn & set(PAPERS)


def test_no_module_of_the_exam_is_seen_by_what_trains_and_none_of_its_code_is_shared():
    root = Path(gossamer.__file__).parent
    for file in (root / "train" / "vision").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("gossamer.exam") for name in names), file


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [
        ("red", "red", True),
        (" Red. ", "red", True),
        ("top left", "top left", True),
        ("left", "top left", False),
        ("red circle", "red", False),
        ("", "red", False),
        ("a", "A", True),
    ],
)
def test_what_counts_as_right(said, wanted, right):
    assert is_right(said, wanted) == right


@pytest.fixture(scope="module")
def viewer():
    model = load(NANO, experts="dense")
    width = model.config.hidden_size
    config = VisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_layers=1,
        num_heads=2,
        qkv_size=16,
        projector_hidden_size=16,
        text_hidden_size=width,
    )
    weights = {name: t.detach().numpy() for name, t in Vision(config, seed=1).state_dict().items()}
    tower = VisionNetwork(config, weights.items())
    rules = ImageRules(in_patch_limit=64)
    return Viewer(model=model, tokenizer=Tokenizer.load(NANO), tower=tower, rules=rules)


def test_an_untrained_tower_answers_and_the_report_counts(viewer, monkeypatch):
    said = iter(["3", "wrong", "B", "wrong", "wrong"])
    monkeypatch.setattr(
        Viewer, "answer", lambda self, shown, effort: shown.answer if next(said) != "wrong" else "?"
    )
    seen = []
    report = examine(viewer, model_name="m", seed=2, count=5, progress=lambda *at: seen.append(at))
    assert seen == [(i, 5) for i in range(1, 6)]
    assert (report.total.exact.count, report.total.exact.total) == (2, 5)
    assert {g.name: (g.exact.count, g.exact.total) for g in report.kinds} == {
        "shapes": (1, 2),
        "word": (0, 1),
        "chart": (1, 1),
        "screen": (0, 1),
    }
    with pytest.raises(ExamError, match="at least one"):
        examine(viewer, model_name="m", seed=2, count=0, progress=lambda *_: None)


def test_rows_reach_the_network_and_answers_are_greedy(viewer, monkeypatch):
    """Answering step by step with a cache is what one pass over everything gives."""
    monkeypatch.setattr(picture_exam, "MAX_TOKENS", 6)
    shown = pictures.picture(1, 0)
    given = {}

    def watch(self, ids, embeddings):
        given["ids"], given["embeddings"] = ids, embeddings
        given["made"] = original(self, ids, embeddings)
        return given["made"]

    original = Viewer._greedy
    monkeypatch.setattr(Viewer, "_greedy", watch)
    viewer.answer(shown, "low")
    ids, made = given["ids"], given["made"]
    table = viewer.model.model.embed_tokens.weight
    plain = torch.nn.functional.embedding(ids, table)
    assert int((given["embeddings"] != plain).any(-1).sum()) == 16
    with torch.no_grad():
        rest = torch.tensor([made[:-1]])
        whole = torch.cat([given["embeddings"], torch.nn.functional.embedding(rest, table)], 1)
        logits = viewer.model(torch.cat([ids, rest], 1), embeddings=whole)
    assert logits[0, ids.shape[1] - 1 :].argmax(-1).tolist() == made


def test_a_model_without_a_tower_is_refused(tmp_path, monkeypatch):
    from gossamer.cli.eval_nano import eval_nano

    with pytest.raises(ExamError, match="no vision tower"):
        eval_nano(model="debug", pictures=3, tower=tmp_path)
