"""Held-out prompts for the draft head, and the whole of its command on a small model."""

import json

import pytest

from gossamer.checkpoint import CheckpointWriter
from gossamer.config import hf, presets
from gossamer.model import draft as drafting
from gossamer.model.state_dict_adapter import to_checkpoint
from gossamer.model.transformer import Transformer
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import card, draft, heldout
from gossamer.train.dialogue.values import WORDS
from gossamer.train.document import Document
from gossamer.train.errors import TrainError
from gossamer.train.plan import two_stages
from gossamer.train.prepare import Prepared
from gossamer.train.streams import encode_corpus
from gossamer.train.workloads import PROMPT_TOKENS, workloads

from .test_export import FACTS


@pytest.fixture
def prepared(tmp_path):
    """A data folder with a little of everything."""
    texts = {
        "prose": "The ship went on and nobody spoke of it. ",
        "python": "def walk(first):\n    return first\n",
    }
    documents = [
        Document(package="p", category=category, path=f"{number}", text=text * 60, held_out=held_out)
        for category, text in texts.items()
        for number in range(3)
        for held_out in (True, False)
    ]
    folder = tmp_path / "run" / "data"
    folder.mkdir(parents=True)
    tokenizer = Tokenizer.bytes_only()
    tokenizer.save(folder / "tokenizer")
    heldout.save(documents, folder)
    encode_corpus(documents, tokenizer, folder)
    (folder / "words.json").write_text(json.dumps(list(WORDS)))
    (folder / "glossary.json").write_text("[]")
    (folder / "manifest.json").write_text("[]")
    return Prepared(folder=folder, tokenizer=tokenizer, manifest=[], glossary=[], words=list(WORDS))


def test_every_workload_has_its_prompts_and_an_edit_repeats_with_a_name_changed(prepared):
    found = workloads(prepared, 1, 2)
    assert set(found) == {"prose", "code", "tool-result echo", "repetitive edit"}
    assert {len(prompts) for prompts in found.values()} == {2}
    assert {len(ids) for ids in found["prose"] + found["code"]} == {PROMPT_TOKENS}
    text = prepared.tokenizer.decode(found["repetitive edit"][0])
    first, _, again = text.partition("\n\n")
    assert "renamed" in again
    assert "renamed" not in first
    assert workloads(prepared, 1, 2) == found


def test_too_little_held_out_text_is_said(prepared):
    with pytest.raises(TrainError, match=r"3 held-out prose documents of 1,536 characters; 4 are needed"):
        workloads(prepared, 1, 4)


@pytest.mark.slow
def test_a_head_is_trained_measured_and_written_beside_an_export(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr(draft, "INTERMEDIATE_SIZE", 16)
    monkeypatch.setattr(draft, "LARGEST_SHARE", 1.0)
    two_stages("tokens", 1000.0, length=128).write(tmp_path / "run" / "plan.json")
    out = tmp_path / "out"
    model = Transformer(presets.load("debug"), seed=1)
    with CheckpointWriter(out) as writer:
        for name, array, dtype in to_checkpoint(model):
            writer.add(name, array, dtype)
    hf.write(model.config, out / "config.json")
    (out / card.FACTS_FILE).write_text(json.dumps(FACTS))
    result = draft.build(out, tmp_path / "run", seconds=2.0, prompts=1, new_tokens=8, show=lambda line: None)
    assert [row["workload"] for row in result["acceptance"]] == list(workloads(prepared, 1, 1))
    assert json.loads((out / card.DRAFT_FILE).read_text())["training"] == result["training"]
    assert drafting.load(out, model.config) is not None
    assert f"({result['training']['bytes']:,} bytes)" in (out / card.CARD_FILE).read_text()
    monkeypatch.setattr(draft, "LARGEST_SHARE", 0.001)
    with pytest.raises(TrainError, match=r"bytes is over 0%"):
        draft.build(out, tmp_path / "run", seconds=2.0, prompts=1, new_tokens=8)
