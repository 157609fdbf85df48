"""The gathered form for many queries over a long context is the masked form."""

import torch

from gossamer.model import Transformer, gated_dsa
from model.small import debug, lively, tokens
from numerics import assert_close


@torch.no_grad()
def test_gathered_blocks_equal_masked_blocks(monkeypatch):
    model: Transformer = lively(debug()).eval()
    top_k = model.config.dsa.top_k
    ids = tokens(model.config, 2, 6 * top_k)
    masked = model(ids)
    monkeypatch.setattr(gated_dsa, "_LONG", 1)
    monkeypatch.setattr(gated_dsa, "_GATHERED_QUERIES", 5)
    called = []
    select = gated_dsa.select_block
    monkeypatch.setattr(gated_dsa, "select_block", lambda *a: called.append(a) or select(*a))
    assert_close(model(ids), masked, ("model", "float32", "split"), "one pass")
    cache = model.new_cache(2)
    parts = [model(ids[:, at : at + 2 * top_k], cache) for at in range(0, 6 * top_k, 2 * top_k)]
    assert_close(torch.cat(parts, 1), masked, ("model", "float32", "split"), "blocks")
    assert called


def test_training_keeps_the_masked_form(monkeypatch):
    monkeypatch.setattr(gated_dsa, "_LONG", 0)
    monkeypatch.setattr(gated_dsa, "select_block", None)
    model = lively(debug())
    ids = tokens(model.config, 1, 3 * model.config.dsa.top_k)
    model(ids).sum().backward()
