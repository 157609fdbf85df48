import pytest
import torch

from gossamer.ops.router import expert_load, naive_route, route
from numerics import assert_close

KEY = ("router", "float32", "vectorised")


@pytest.mark.parametrize(("num_groups", "top_k_groups"), [(1, 1), (4, 2), (2, 2)])
@pytest.mark.parametrize("renormalize", [True, False])
def test_vectorised_routing_equals_the_definition(num_groups, top_k_groups, renormalize):
    x, weight, bias = torch.randn(30, 8), torch.randn(12, 8, requires_grad=True), torch.randn(12)
    options = {
        "experts_per_token": 3,
        "num_groups": num_groups,
        "top_k_groups": top_k_groups,
        "renormalize": renormalize,
        "scaling_factor": 2.446,
    }
    got, want = route(x, weight, bias, **options), naive_route(x, weight, bias, **options)
    assert torch.equal(got.indices, want[0])
    assert_close(got.weights, want[1], KEY, "weights")
    loss = torch.randn_like(want[1])
    grads = [torch.autograd.grad((w * loss).sum(), weight)[0] for w in (got.weights, want[1])]
    assert_close(*grads, KEY, "gradient")


def test_bias_moves_the_selection_but_not_the_weight():
    x, weight = torch.ones(1, 1), torch.tensor([[2.0], [1.0], [-1.0]])
    plain = route(x, weight, torch.zeros(3), experts_per_token=1, renormalize=False)
    moved = route(x, weight, torch.tensor([0.0, 0.0, 5.0]), experts_per_token=1, renormalize=False)
    assert plain.indices.tolist() == [[0]]
    assert moved.indices.tolist() == [[2]]
    assert moved.weights.item() == pytest.approx(torch.sigmoid(torch.tensor(-1.0)).item())


def test_equal_scores_go_to_the_lower_expert():
    got = route(torch.zeros(2, 4), torch.randn(6, 4), torch.zeros(6), experts_per_token=2)
    assert got.indices.tolist() == [[0, 1], [0, 1]]
    assert got.weights.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_load_counts_every_pair():
    assert expert_load(torch.tensor([[0, 2], [2, 3]]), 5).tolist() == [1, 0, 2, 1, 0]
