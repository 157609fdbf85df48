"""The fused network equals the model: loss, every gradient, the indexers' loss, the experts' loads."""

import pytest
import torch

from gossamer.config import presets
from gossamer.model.trace import Trace
from gossamer.model.transformer import Transformer
from gossamer.train.errors import TrainError
from gossamer.train.fused import network
from gossamer.train.initial import lengthen_memory
from gossamer.train.passes import FusedPasses, Job, TorchPasses, summed_loss

SEED = 5


def make(preset, rows, tokens):
    torch.manual_seed(SEED)
    model = Transformer(presets.load(preset), experts="dense", seed=SEED)
    lengthen_memory(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("e_score_correction_bias"):
                parameter.normal_(0, 0.05)
            elif "norm" in name or "res_proj" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    ids = torch.randint(0, model.config.vocab_size, (rows, tokens))
    targets = torch.where(torch.rand(rows, tokens) < 0.7, torch.randint(0, 200, (rows, tokens)), -100)
    targets[0, 0] = 3
    return model, ids, targets


def both(model, ids, targets, mode, want_kl):
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    trace = Trace(want_indexer_loss=want_kl)
    loss = summed_loss(model(ids, attention_mode=mode, trace=trace), targets)
    ask = network.Ask(mode=mode, want_indexer_loss=want_kl)
    fused = network.loss_sum(model, ids, targets, ask)
    kls = (sum(trace.indexer_losses.values()), sum(ask.indexer_losses.values())) if want_kl else (0.0, 0.0)
    wanted = list(named.values())
    expected = torch.autograd.grad(loss + kls[0], wanted, allow_unused=True)
    got = torch.autograd.grad(fused + kls[1], wanted, allow_unused=True)
    return (loss, fused), kls, dict(zip(named, zip(expected, got, strict=True), strict=True)), (trace, ask)


@pytest.mark.parametrize(
    ("preset", "rows", "tokens", "mode", "want_kl"),
    [
        ("debug", 2, 50, "dense", False),
        ("debug", 1, 97, "sparse", True),
        ("nano", 1, 200, "sparse", True),
        ("nano", 2, 61, "dense", False),
    ],
)
def test_loss_and_gradients_equal_the_models(preset, rows, tokens, mode, want_kl):
    model, ids, targets = make(preset, rows, tokens)
    losses, kls, gradients, (trace, ask) = both(model, ids, targets, mode, want_kl)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-3)
    if want_kl:
        torch.testing.assert_close(kls[1], kls[0], rtol=1e-3, atol=1e-4)
    for layer, load in trace.expert_loads.items():
        assert torch.equal(load, ask.expert_loads[layer])
    for name, (expected, got) in gradients.items():
        assert (expected is None) == (got is None), name
        if expected is None:
            continue
        scale = max(float(expected.abs().max()), 1e-3)
        worst = float((expected - got).abs().max()) / scale
        assert worst < 2e-3, f"{name}: {worst:.2e} of {scale:.2e}"


def test_rows_that_ask_for_nothing_count_nothing():
    model, ids, targets = make("debug", 1, 20)
    targets.fill_(-100)
    for passes in (TorchPasses(model), FusedPasses(model)):
        passes.begin_step(fake_quant=False)
        job = Job(ids=ids, targets=targets, scale=1.0, kl_scale=None, mode="dense", trunk=True)
        found = passes.run(job, [model.lm_head.weight, model.model.embed_tokens.weight])
        assert found.loss == 0.0
        assert all(gradient is None or not gradient.any() for gradient in found.gradients)


def test_logits_equal_the_models():
    model, ids, _ = make("nano", 1, 150)
    with torch.no_grad():
        expected = model(ids, attention_mode="sparse")
        got = network.logits(model, ids, network.Ask(mode="sparse"))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


def test_an_architecture_it_does_not_compute_is_refused():
    model = Transformer(presets.load("debug"), experts="packed", seed=None)
    with pytest.raises(TrainError, match="dense experts"):
        network.check(model)


def test_weighted_targets_give_the_same_loss_and_gradients_as_the_models():
    model, ids, targets = make("debug", 2, 50)
    weights = torch.where(torch.rand(2, 50) < 0.3, 8.0, 1.0)
    named = [p for n, p in model.named_parameters() if p.requires_grad and "indexer" not in n]
    expected = summed_loss(model(ids, attention_mode="dense"), targets, weights)
    got = network.loss_sum(model, ids, targets, network.Ask(mode="dense"), weights)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-3)
    for a, b in zip(
        torch.autograd.grad(got, named, allow_unused=True),
        torch.autograd.grad(expected, named, allow_unused=True),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)
