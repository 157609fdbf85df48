"""Embeddings given for some tokens of a pass: native, numpy and the definition agree, misfits are named."""

import numpy as np
import pytest
import torch

from gossamer.kernels.network import CacheSize, Given, Network, NetworkError
from gossamer.kernels.plain_network import PlainNetwork
from gossamer.kernels.random_weights import random_weights
from gossamer.train.fused import network as fused
from kernels.test_network import definition, folders, network  # noqa: F401  (a fixture among them)
from model.small import FAMILIES, debug, lively, tokens
from numerics import assert_close

SPAN = np.array([[40, 0, 1, 6, 1]], np.int64)
TABLE = np.array([3, 1, 7, 0, 2, 5], np.int32)
PLACES = [0, 1, 2, 11, 12, 30]


@pytest.mark.parametrize("family", FAMILIES)
def test_native_equals_the_definition(folders, family):  # noqa: F811
    made = folders[family]
    config = made[0]
    ids = tokens(config, 1, 40, seed=5)
    rows = torch.randn(len(PLACES), config.hidden_size, generator=torch.Generator().manual_seed(6))
    model = definition(made)
    with torch.inference_mode():
        given = model.model.embed_tokens(ids).clone()
        given[0, PLACES] = rows
        want = model(ids, embeddings=given)[0, -1:]
        assert not torch.allclose(model(ids)[0, -1:], want, atol=1e-3)
    handed = Given(rows=np.array(PLACES, np.int64), values=rows.numpy())
    got = network(made).run(ids[0].numpy(), SPAN, TABLE, handed)
    assert_close(torch.from_numpy(got), want, ("model", "float32", "native"), family)


def test_the_training_kernels_take_them_too():
    model = lively(debug())
    ids = tokens(model.config, 2, 20)
    given = torch.randn(2, 20, model.config.hidden_size).requires_grad_()
    probe = torch.randn(2, 20, model.config.vocab_size)
    found = []
    for compute in (
        lambda: model(ids, attention_mode="dense", embeddings=given),
        lambda: torch.nn.functional.linear(
            fused.hidden(model, ids, fused.Ask(mode="dense"), given), model.lm_head.weight
        ),
    ):
        logits = compute()
        found.append((logits.detach(), torch.autograd.grad((logits * probe).sum(), given)[0]))
    assert_close(found[1][0], found[0][0], ("model", "float32", "native"))
    assert_close(found[1][1], found[0][1], ("oracle", "float32", "model_gradients"))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("rows", "shape", "names"),
    [
        ([40], (1, 0), "row 40 does not exist"),
        ([-1], (1, 0), "row -1 does not exist"),
        ([1], (1, 1), r"must be \[1, "),
        ([1, 2], (1, 0), r"must be \[2, "),
    ],
)
def test_rows_that_do_not_fit_are_named(plain, rows, shape, names):
    config = debug()
    cache = CacheSize(block_size=8, num_blocks=8, num_slots=2)
    net = (PlainNetwork if plain else Network)(config, random_weights(config, 1), cache=cache)
    values = np.zeros((shape[0], config.hidden_size + shape[1]), np.float32)
    with pytest.raises(NetworkError, match=names):
        net.run(np.zeros(40, np.int64), SPAN, TABLE, Given(rows=np.array(rows, np.int64), values=values))


def test_the_binding_itself_refuses_rows_outside_the_pass():
    """What Python checks the kernels check again: they write to memory by these numbers."""
    config = debug()
    cache = CacheSize(block_size=8, num_blocks=8, num_slots=2)
    native = Network(config, random_weights(config, 1), cache=cache)._native
    logits = np.empty((1, config.vocab_size), np.float32)
    ids = np.zeros(40, np.int64)
    for rows, width in (([40], 0), ([-1], 0), ([0], 1)):
        values = np.zeros((1, config.hidden_size + width), np.float32)
        with pytest.raises(ValueError, match="given"):
            native.run(ids, SPAN, TABLE, np.array(rows, np.int64), values, logits)
