"""Plans: written, read, refused; rates; the optimiser's two halves."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.errors import TrainError
from gossamer.train.muon import MuonAdam, orthogonalise, uses_muon
from gossamer.train.plan import Plan, after_graft, two_stages
from gossamer.train.prepare import prepare
from gossamer.train.run import open_run, trained


def test_a_plan_is_read_back_as_written(tmp_path):
    plan = two_stages("tokens", 1000.0, seed=4)
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"unit": "tokens"}', '{"phases": [], "text_shares": []}', '{"phases": [{"name": 1}]}'],
)
def test_a_plan_of_another_version_is_named(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(TrainError, match=r"plan\.json is no plan of this version"):
        Plan.read(tmp_path / "plan.json")


@pytest.mark.parametrize("recipe", [two_stages, after_graft])
def test_a_fifth_of_the_tokens_or_more_is_sparse(recipe):
    plan = recipe("tokens", 1000.0)
    assert sum(p.budget for p in plan.phases) == pytest.approx(1000.0)
    sparse = sum(p.budget for p in plan.phases if p.attention == "sparse")
    assert sparse / sum(p.budget for p in plan.phases) >= 0.2


def test_rate_warms_up_holds_and_falls():
    plan = two_stages("tokens", 1000.0)
    assert plan.rate(0, 0.0) == pytest.approx(1 / plan.warmup_steps)
    assert plan.rate(500, 0.4 * plan.trunk_budget) == 1.0
    assert plan.rate(500, plan.trunk_budget) == pytest.approx(plan.final_scale)


def test_impossible_plans_are_refused():
    with pytest.raises(TrainError, match="budget"):
        two_stages("tokens", 0.0)
    with pytest.raises(TrainError, match="multiple"):
        replace(two_stages("tokens", 10.0), batch_rows=3, micro_rows=2)


def test_a_start_that_is_no_export_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TrainError, match=r"--start .*nothing is no export"):
        open_run(tmp_path / "run", minutes=1, start=tmp_path / "nothing")
    assert not (tmp_path / "run").exists()


def test_data_of_another_vocabulary_is_refused(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the quick brown fox jumps over the lazy dog. " * 400)
    own, other = tmp_path / "own", tmp_path / "other"
    Tokenizer.bytes_only().save(own)
    Tokenizer({bytes((i,)): i for i in range(256)} | {b"th": 256}, specials=specials.small(257)).save(other)
    settings = {"cache": tmp_path, "seed": 1, "vocab_size": 320, "data_dir": tmp_path / "texts"}
    built = prepare(tmp_path / "data", vocabulary_of=own, **settings)
    assert built.tokenizer.num_ranks == 256
    prepare(tmp_path / "data", vocabulary_of=own, **settings)
    with pytest.raises(TrainError, match="another vocabulary"):
        prepare(tmp_path / "data", vocabulary_of=other, **settings)


def test_a_new_run_needs_a_budget_and_only_one(tmp_path):
    with pytest.raises(TrainError, match="--minutes or --tokens"):
        open_run(tmp_path / "run")
    with pytest.raises(TrainError, match="not both"):
        open_run(tmp_path / "run", minutes=1, tokens=1)
    with pytest.raises(TrainError, match="holds no run"):
        trained(tmp_path / "run")


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 64, 32), (2, 32, 96)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(x))
    assert values.min() > 0.4
    assert values.max() < 1.3


def test_muon_takes_matrices_and_adam_the_rest():
    matrix, vector = nn.Parameter(torch.zeros(32, 32)), nn.Parameter(torch.zeros(32))
    assert uses_muon("model.layers.0.self_attn.q_proj.weight", matrix)
    assert not uses_muon("model.layers.0.input_layernorm.weight", vector)
    assert not uses_muon("lm_head.weight", matrix)
    assert not uses_muon("model.layers.1.block_sparse_moe.gate.weight", matrix)


def test_a_grafted_plan_says_so_and_is_read_back(tmp_path):
    after_graft("seconds", 60.0, start_from="x").write(tmp_path / "plan.json")
    plan = Plan.read(tmp_path / "plan.json")
    assert plan.grafted
    assert plan.start_from == "x"


def test_a_graft_needs_weights_to_begin_with(tmp_path):
    with pytest.raises(TrainError, match=r"--graft .* --start"):
        open_run(tmp_path / "run", minutes=1, graft=True)
    assert not (tmp_path / "run").exists()


def test_a_restored_optimiser_can_be_given_other_rates():
    model = nn.Linear(32, 32)
    optimizer = MuonAdam(model.named_parameters(), lr=1e-2, matrix_lr=2e-2)
    saved = optimizer.state_dict()
    optimizer = MuonAdam(model.named_parameters(), lr=1e-3, matrix_lr=2e-3)
    optimizer.load_state_dict(saved)
    optimizer.set_peaks(1e-3, 2e-3)
    optimizer.set_scale(0.5)
    assert sorted(group["lr"] for group in optimizer.param_groups) == [0.5e-3, 1e-3]


def test_optimiser_goes_downhill_and_restores(tmp_path):
    def build():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Tanh(), nn.Linear(32, 32))
        return model, MuonAdam(model.named_parameters(), lr=1e-2, matrix_lr=1e-2)

    def advance(model, optimizer, steps):
        x = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
        for _ in range(steps):
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    model, optimizer = build()
    first = advance(model, optimizer, 1)
    advance(model, optimizer, 10)
    saved = {k: v.clone() for k, v in model.state_dict().items()}, optimizer.state_dict()
    torch.save(saved, tmp_path / "s.pt")
    last = advance(model, optimizer, 40)
    assert last < 0.5 * first
    again, second = build()
    weights, state = torch.load(tmp_path / "s.pt")
    again.load_state_dict(weights)
    second.load_state_dict(state)
    assert advance(again, second, 40) == last
