"""The loop learns, goes through its phases, and goes on after a stop as if nothing had happened."""

import json

import pytest
import torch

from gossamer.train import curve
from gossamer.train.errors import TrainError
from gossamer.train.loop import LOG_FILE


def losses(folder):
    return [(r["step"], r["phase"], r["loss"]) for r in curve.read_log(folder / LOG_FILE)]


def test_loss_falls_and_every_phase_runs(make_trainer):
    trainer = make_trainer("run", tokens=40 * 2 * 96)
    trainer.run()
    seen = losses(trainer.folder)
    text = [loss for _, phase, loss in seen if phase == "text"]
    assert text[-1] < text[0] - 1.0
    assert [phase for _, phase, _ in seen if phase == "indexer"]
    assert [phase for _, phase, _ in seen if phase == "dialogue, dense"]
    assert [phase for _, phase, _ in seen if phase == "dialogue, sparse"]
    assert trainer.progress.phase == len(trainer.plan.phases) == 5


def test_stop_and_resume_gives_the_same_losses_and_weights(make_trainer):
    whole = make_trainer("whole")
    whole.run()
    first = make_trainer("parts")
    first.run(max_steps=5)
    second = make_trainer("parts")
    second.run(max_steps=7)
    third = make_trainer("parts")
    third.run()
    assert losses(whole.folder) == losses(third.folder)
    for (name, a), (_, b) in zip(whole.model.named_parameters(), third.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_indexer_phase_leaves_the_trunk_alone(make_trainer):
    trainer = make_trainer("run")
    while trainer.plan.phases[trainer.progress.phase].name != "indexer":
        trainer.run(max_steps=1)
    trunk = {n: p.detach().clone() for n, p in trainer.trunk.items()}
    indexer = {n: p.detach().clone() for n, p in trainer.indexer.items()}
    trainer.run(max_steps=1)
    assert all(torch.equal(trunk[n], p) for n, p in trainer.trunk.items())
    assert any(not torch.equal(indexer[n], p) for n, p in trainer.indexer.items())


def test_text_phase_leaves_the_indexer_alone(make_trainer):
    trainer = make_trainer("run")
    before = {n: p.detach().clone() for n, p in trainer.indexer.items()}
    trainer.run(max_steps=2)
    assert all(torch.equal(before[n], p) for n, p in trainer.indexer.items())


def test_selection_bias_moves_against_the_load(make_trainer):
    trainer = make_trainer("run")
    layer, moe = next(iter(trainer._balanced.items()))
    load = torch.zeros(moe.config.num_experts, dtype=torch.int64)
    load[0] = 100
    trainer._balance({layer: load}, 0.5)
    bias = moe.gate.e_score_correction_bias
    assert bias[0] == -0.5
    assert (bias[1:] == 0.5).all()


def test_stop_ends_after_the_step_and_saves(make_trainer):
    trainer = make_trainer("run")
    trainer.stop()
    trainer.run()
    assert trainer.progress.step == 0
    assert (trainer.folder / "state.pt").exists()


def test_log_holds_speed_loss_and_load(make_trainer):
    trainer = make_trainer("run")
    trainer.run(max_steps=1)
    record = json.loads((trainer.folder / LOG_FILE).read_text().splitlines()[0])
    assert {"loss", "tokens", "seconds", "overload", "grad_norm", "phase", "scale"} <= record.keys()


def test_a_loss_that_is_no_number_is_an_error_and_nothing_is_saved(make_trainer):
    trainer = make_trainer("run")
    with torch.no_grad():
        trainer.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(TrainError, match="the loss is nan"):
        trainer.run()
    assert not (trainer.folder / "state.pt").exists()
