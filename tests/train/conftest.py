"""A training run small enough for the quick tier: the debug architecture on bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gossamer.config import presets
from gossamer.model.transformer import Transformer
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.dialogue.generate import Generator
from gossamer.train.document import Document
from gossamer.train.loop import Trainer
from gossamer.train.plan import two_stages
from gossamer.train.streams import CopyRows, DialogueRows, MixedRows, TextRows, encode_corpus

LENGTH = 96
SEED = 11


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_config():
    return presets.load("debug")


@pytest.fixture
def tiny_data(tmp_path) -> Path:
    """A folder with encoded text: a few sentences again and again."""
    text = "the quick brown fox jumps over the lazy dog. a small model learns small things. " * 40
    document = Document(package="p", category="technical", path="a", text=text, held_out=False)
    folder = tmp_path / "data"
    folder.mkdir()
    encode_corpus([document], Tokenizer.bytes_only(), folder)
    return folder


@pytest.fixture
def make_trainer(tmp_path, tiny_config, tiny_data):
    """Build a trainer on a folder; the same call again gives one that resumes there."""

    def make(name: str, tokens: int = 24 * 2 * LENGTH) -> Trainer:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        plan = two_stages("tokens", tokens, seed=SEED, length=LENGTH, batch_rows=2, micro_rows=1)
        plan = replace(plan, text_shares=(("technical", 1.0),), lr=1e-2, matrix_lr=1e-2, warmup_steps=2)
        text = TextRows(tiny_data, dict(plan.text_shares), LENGTH, SEED)
        tokenizer = Tokenizer.bytes_only()
        dialogues = DialogueRows(Generator(SEED), tokenizer, LENGTH)
        data = {
            "copying": MixedRows({"copy": (CopyRows(tiny_data, LENGTH, SEED, 256), 1.0)}, SEED),
            "text": MixedRows({"text": (text, 1.0)}, SEED),
            "dialogue": MixedRows({"text": (text, 0.5), "dialogue": (dialogues, 0.5)}, SEED),
        }
        return Trainer(Transformer(tiny_config, seed=SEED), plan, data, folder, show=lambda line: None)

    return make
