"""Fitted indexers select what the attention of their layer looks at."""

import pytest
import torch

from gossamer.model.trace import Trace
from gossamer.model.transformer import Transformer
from gossamer.train.graft import graft
from gossamer.train.indexers import fit_indexers


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 40, (4, 160), generator=torch.Generator().manual_seed(4))


@torch.no_grad()
def distance(model: Transformer, ids: torch.Tensor) -> dict[int, float]:
    """KL from the attention to what the indexer would look at, per layer."""
    trace = Trace(want_indexer_loss=True)
    model(ids, attention_mode="dense", trace=trace)
    return {layer: float(loss) for layer, loss in trace.indexer_losses.items()}


def test_a_fitted_indexer_is_closer_to_its_attention(tiny_config, ids):
    model = Transformer(tiny_config, seed=1)
    graft(model, ids)
    before = distance(model, ids)
    attention = {n: p.clone() for n, p in model.named_parameters() if "indexer" not in n}
    fit_indexers(model, ids)
    after = distance(model, ids)
    assert before.keys() == after.keys() == set(tiny_config.dsa.layers)
    assert all(after[layer] < 0.7 * before[layer] for layer in before), (before, after)
    assert all(torch.equal(p, attention[n]) for n, p in model.named_parameters() if n in attention)
