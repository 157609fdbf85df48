"""The text bar: every byte is charged once, whatever the windows."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import textbar
from gossamer.train.document import Document
from gossamer.train.errors import TrainError


def sets(*texts: str) -> dict[str, list[Document]]:
    made = [
        Document(package="p", category="prose", path=str(i), text=t, held_out=True)
        for i, t in enumerate(texts)
    ]
    return {"prose": made}


@given(st.integers(0, 90), st.integers(2, 17), st.data())
def test_windows_charge_every_token_once_with_its_own_past(length, context, data):
    stride = data.draw(st.integers(1, context))
    ids = list(range(100, 100 + length))
    charged = []
    for window in textbar.windows(ids, 7, context, stride):
        assert len(window.ids) <= context + 1
        charged += window.ids[-window.charged :]
        whole = [7, *ids]
        start = whole.index(window.ids[0])
        assert list(window.ids) == whole[start : start + len(window.ids)]
        assert window.charged < len(window.ids)
    assert charged == ids


def test_a_uniform_model_pays_the_logarithm_of_its_vocabulary():
    tokenizer = Tokenizer.bytes_only()
    found = textbar.measure(
        lambda ids: torch.zeros(*ids.shape, 512), tokenizer, sets("abc" * 50, "d" * 9), context=16, stride=8
    )["prose"]
    assert found["bits_per_byte"] == pytest.approx(9)
    assert (found["bytes"], found["tokens"], found["documents"]) == (159, 159, 2)
    assert found["ratio_to_xz"] == pytest.approx(159 * 9 / 8 / found["xz_bytes"])
    assert json.loads(json.dumps(found)) == found


def test_the_first_token_is_predicted_from_the_separator_and_documents_do_not_see_each_other():
    tokenizer = Tokenizer.bytes_only()
    end = tokenizer.special(specials.EOS)
    firsts = []

    def forward(ids: torch.Tensor) -> torch.Tensor:
        firsts.extend(ids[:, 0].tolist())
        logits = torch.zeros(*ids.shape, 512)
        logits[ids == end, ord("a")] = 100.0  # sure of "a" after the separator
        return logits

    found = textbar.measure(forward, tokenizer, sets("ax", "ay", "azz"), context=16, stride=8)["prose"]
    assert firsts == [end] * 3
    assert found["bits_per_byte"] * found["bytes"] == pytest.approx(4 * 9)


def test_the_stride_changes_context_only():
    tokenizer = Tokenizer.bytes_only()
    weights = torch.randn(512, 512, generator=torch.Generator().manual_seed(3))
    values = [
        textbar.measure(lambda ids: weights[ids], tokenizer, sets("some words " * 9), context=c, stride=s)
        for c, s in ((16, 16), (16, 5), (300, 300))
    ]
    bits = [value["prose"]["bits_per_byte"] for value in values]
    assert bits[1:] == pytest.approx(bits[:1] * 2)


def test_settings_that_cannot_be_are_refused():
    tokenizer = Tokenizer.bytes_only()
    with pytest.raises(TrainError, match="stride 9 is outside"):
        textbar.measure(lambda ids: ids, tokenizer, sets("a"), context=8, stride=9)
    with pytest.raises(TrainError, match="no text"):
        textbar.measure(lambda ids: ids, tokenizer, {"prose": []}, context=8, stride=8)
    assert math.isfinite(textbar.xz_bytes(sets("abc")["prose"]))
