"""Training of the draft head lowers its loss and leaves the trunk alone; acceptance counts what is right."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from gossamer.config import presets
from gossamer.model.transformer import Transformer
from gossamer.train import draft
from gossamer.train.streams import Batch


class Repeating:
    """Rows of one short cycle of ids."""

    def batch(self, first_row, num_rows):
        ids = np.stack([(np.arange(48) + first_row + i) % 5 for i in range(num_rows)]).astype(np.int64)
        return Batch(
            ids=ids, targets=ids, decisive=np.zeros(ids.shape, dtype=np.int8), kinds=("text",) * num_rows
        )


@pytest.fixture
def trunk():
    return Transformer(presets.load("debug"), seed=3).eval()


@pytest.mark.parametrize("kernels", ["fused", "torch"])
def test_training_lowers_the_loss_and_leaves_the_trunk_alone(trunk, kernels):
    with torch.no_grad():
        # A random trunk predicts nearly nothing; sharper logits give the head something to learn.
        trunk.lm_head.weight.mul_(20)
    before = {n: p.detach().clone() for n, p in trunk.named_parameters()}
    # A clock of its own, so that a busy machine trains as many steps as an idle one.
    head, facts = draft.train(
        trunk,
        Repeating(),
        seconds=60.0,
        seed=1,
        kernels=kernels,
        threads=2,
        show=lambda line: None,
        now=itertools.count().__next__,
    )
    assert facts["steps"] >= 40
    assert facts["last_loss"] < 0.7 * facts["first_loss"]
    assert all(torch.equal(before[n], p) for n, p in trunk.named_parameters())
    assert not head.training


class Apply(nn.Module):
    """A function where the trunk wants a module."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


@pytest.mark.parametrize(("wrong_from", "expected"), [(9, (1.0, 1.0, 1.0, 1.0)), (2, (1.0, 1.0, 0.0, 0.0))])
def test_acceptance_counts_the_leading_tokens_that_are_right(trunk, monkeypatch, wrong_from, expected):
    """The trunk says id + 1; the head does too, until `wrong_from` steps of its own."""
    vocab = trunk.config.vocab_size
    embed = torch.eye(vocab)

    class Head(nn.Module):
        def new_cache(self, batch_size):
            return type(
                "State", (), {"conv_tail": torch.zeros(1), "state": torch.zeros(1), "store": lambda *_: 0}
            )()

        def forward(self, embedded, hidden, cache):
            # `hidden` carries in its last place how many draft steps it has come through.
            token, depth = int(embedded[0, -1, :vocab].argmax()), int(hidden[0, -1, vocab])
            y = torch.zeros(1, 1, vocab + 1)
            y[0, 0, (token + (1 if depth < wrong_from else 2)) % vocab] = 1.0
            y[0, 0, vocab] = depth + 1
            return y

    monkeypatch.setattr(draft, "_continued", lambda model, prompt, n, stop: [*prompt, *range(10, 10 + n)])
    monkeypatch.setattr(
        draft.drafting, "last_hidden", lambda model, ids: torch.zeros(1, ids.shape[1], vocab + 1)
    )
    trunk.model.embed_tokens = Apply(lambda ids: embed[ids])
    trunk.lm_head = Apply(lambda y: y[..., :vocab])
    (found,) = draft.acceptance(trunk, Head(), {"count": [[8, 9]]}, new_tokens=20, stop=-1)
    assert found.by_depth == expected
    assert found.tokens_per_pass == 1 + sum(expected)
    assert found.tokens > 10
