from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.config import count
from gossamer.model import Trace, Transformer
from gossamer.model.errors import ModelError
from model.small import FAMILIES, debug, kimi_linear, lively, tokens, wide_index, without_choices
from numerics import EXACT, assert_close, assert_within

LENGTH = 40
MODELS = {name: lively(make()).eval() for name, make in FAMILIES.items()}


def run_split(model, ids, cuts):
    cache = model.new_cache(ids.shape[0])
    edges = [0, *cuts, ids.shape[1]]
    parts = [model(ids[:, a:b], cache) for a, b in pairwise(edges)]
    cache.check_integrity()
    assert cache.length == ids.shape[1]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_token_by_token_equals_one_pass(family):
    model = MODELS[family]
    ids = tokens(model.config, 2, LENGTH)
    assert_close(run_split(model, ids, range(1, LENGTH)), model(ids), ("model", "float32", "split"), family)


@pytest.mark.parametrize("family", FAMILIES)
@given(cuts=st.sets(st.integers(1, LENGTH - 1), max_size=5))
@settings(max_examples=12)
@torch.no_grad()
def test_any_split_equals_one_pass(family, cuts):
    model = MODELS[family]
    ids = tokens(model.config, 1, LENGTH, seed=3)
    assert_close(run_split(model, ids, sorted(cuts)), model(ids), ("model", "float32", "split"), f"{cuts}")


@torch.no_grad()
def test_sparse_attention_differs_from_dense_and_equals_it_when_top_k_covers_the_context():
    model = MODELS["k3.1"]
    ids = tokens(model.config, 1, LENGTH)
    sparse, dense = model(ids), model(ids, attention_mode="dense")
    covered = model.config.dsa.top_k
    assert_close(sparse[:, :covered], dense[:, :covered], ("model", "float32", "split"), "covered")
    assert (sparse[:, covered:] - dense[:, covered:]).abs().max() > 1e-2
    wide = Transformer(wide_index(model.config))
    wide.load_state_dict(model.state_dict())
    assert_within(wide(ids), dense, EXACT, "wide indexer")


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_future_tokens_change_nothing(family):
    model = MODELS[family]
    ids = tokens(model.config, 1, LENGTH)
    other = ids.clone()
    other[:, 25:] = tokens(model.config, 1, LENGTH - 25, seed=9)
    assert_close(model(other)[:, :25], model(ids)[:, :25], ("model", "float32", "split"))
    assert (model(other)[:, 25:] - model(ids)[:, 25:]).abs().max() > 1e-2


@torch.no_grad()
def test_logits_for_last_are_the_last_row():
    model = MODELS["k3.1"]
    ids = tokens(model.config, 2, 9)
    last = model(ids, logits_for="last")
    assert last.shape == (2, 1, model.config.vocab_size)
    assert_close(last, model(ids)[:, -1:], ("model", "float32", "split"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_gets_a_gradient(family):
    model = lively(FAMILIES[family](), seed=2)
    ids = tokens(model.config, 4, LENGTH)
    trace = Trace(want_indexer_loss=True)
    loss = torch.nn.functional.cross_entropy(model(ids, trace=trace).flatten(0, 1), ids.flatten())
    assert len(trace.indexer_losses) == (0 if model.config.dsa is None else len(model.config.dsa.layers))
    (loss + sum(trace.indexer_losses.values())).backward()
    # The first mix has a single candidate, so its weights exist but do nothing.
    inert = {f"model.layers.0.self_attention_res_{part}.weight" for part in ("norm", "proj")}
    for name, p in model.named_parameters():
        if name.endswith("e_score_correction_bias"):
            assert p.grad is None
        elif name in inert:
            assert p.grad is None or not p.grad.any()
        else:
            assert p.grad is not None, name
            assert torch.isfinite(p.grad).all(), name
            assert p.grad.any(), name


@pytest.mark.parametrize("mode", ["dense", "sparse"])
def test_indexer_loss_trains_the_indexer_alone(mode):
    model = lively(debug())
    ids = tokens(model.config, 2, LENGTH)
    plain = model(ids, attention_mode=mode)
    trace = Trace(want_indexer_loss=True)
    logits = model(ids, attention_mode=mode, trace=trace)
    assert_within(logits.detach(), plain.detach(), EXACT, "logits with and without the loss")
    losses = trace.indexer_losses
    assert sorted(losses) == list(model.config.dsa.layers)
    assert all(loss.item() > 0 for loss in losses.values())
    sum(losses.values()).backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched
    assert all(".indexer." in name for name in touched)


def test_indexer_loss_falls_when_trained():
    model = lively(debug())
    ids = tokens(model.config, 4, LENGTH)
    indexer = [p for name, p in model.named_parameters() if ".indexer." in name]
    optimizer = torch.optim.Adam(indexer, lr=1e-2)
    history = []
    for _ in range(15):
        trace = Trace(want_indexer_loss=True)
        model(ids, attention_mode="dense", trace=trace)
        loss = sum(trace.indexer_losses.values())
        history.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert history[-1] < 0.7 * history[0], history


def test_expert_loads_count_every_slot():
    model = MODELS["k3.1"]
    trace = Trace()
    model(tokens(model.config, 2, 7), trace=trace)
    assert sorted(trace.expert_loads) == [i for i in range(5) if model.config.is_moe_layer(i)]
    for load in trace.expert_loads.values():
        assert load.sum().item() == 2 * 7 * model.config.moe.experts_per_token


@torch.no_grad()
def test_selection_bias_moves_the_load():
    model = lively(debug())
    ids = tokens(model.config, 2, 20)
    model.model.layers[2].block_sparse_moe.gate.e_score_correction_bias[5] = 100.0
    trace = Trace()
    model(ids, trace=trace)
    assert trace.expert_loads[2][5].item() == 40


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_bfloat16_stays_near_float32_and_keeps_the_float32_set(family):
    model = lively(without_choices(FAMILIES[family]()))
    ids = tokens(model.config, 2, 16)
    for p in model.parameters():
        p.copy_(p.bfloat16().float())
    want = model(ids)
    model.cast(torch.bfloat16)
    kept = {name for name, p in model.named_parameters() if p.dtype == torch.float32}
    assert {name.split(".")[-1] for name in kept} == {"A_log", "dt_bias", "e_score_correction_bias", "weight"}
    assert all("conv1d" in name or "o_norm" in name for name in kept if name.endswith("weight"))
    got = model(ids)
    assert got.dtype == torch.bfloat16
    assert_close(got, want, ("model", "bfloat16", "whole"), family)


def test_autocast_trains_near_float32():
    model = lively(without_choices(debug()))
    ids = tokens(model.config, 2, 16)
    want = model(ids)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(ids)
    assert_close(got.detach(), want.detach(), ("model", "bfloat16", "autocast"))
    got.float().square().mean().backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.grad is not None)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@torch.no_grad()
def test_same_input_gives_the_same_bits():
    first, second = (lively(kimi_linear(), seed=5) for _ in range(2))
    ids = tokens(first.config, 2, 20)
    assert torch.equal(first(ids), first(ids))
    assert torch.equal(first(ids), second(ids))
    assert not torch.equal(first(ids), lively(kimi_linear(), seed=6)(ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_parameter_count_equals_the_arithmetic(family):
    config = FAMILIES[family]()
    built = sum(p.numel() for p in Transformer(config).parameters())
    rows = {row.component: row.num_parameters for row in count.summary(config).components}
    padding = sum(t == "kda" for t in config.layer_types) * (config.kda.a_log_size - config.kda.num_heads)
    assert built == sum(rows.values()) - padding


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), r"int64 \[batch, tokens >= 1\]"),
        (torch.zeros(1, 0, dtype=torch.int64), r"got torch.int64 \(1, 0\)"),
        (torch.zeros(1, 2), "got torch.float32"),
        (torch.tensor([[0, 320]]), r"0..320 are outside the vocabulary 0..319"),
        (torch.tensor([[-1, 5]]), r"-1..5 are outside"),
    ],
)
def test_bad_token_ids_are_named(ids, message):
    with pytest.raises(ModelError, match=message):
        MODELS["k3.1"](ids)


def test_cache_of_another_batch_is_refused():
    model = MODELS["k3.1"]
    with pytest.raises(ModelError, match="holds 3 sequences, token_ids 2"):
        model(tokens(model.config, 2, 4), model.new_cache(3))
