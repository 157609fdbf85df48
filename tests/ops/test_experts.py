import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.ops.experts import grouped_experts, naive_experts
from gossamer.ops.situ import silu_gate, situ
from numerics import assert_close

KEY = ("experts", "float32", "grouped")


def bounded(gate, up):
    return situ(gate, up, 4.0, 25.0)


def inputs(tokens, num_experts, fan_out, loads=None):
    scores = torch.rand(tokens, num_experts)
    if loads is not None:
        scores = scores + torch.tensor(loads)
    indices = scores.topk(fan_out, -1).indices
    tensors = [torch.rand(tokens, fan_out), torch.randn(tokens, 6)]
    tensors += [torch.randn(num_experts, *shape) for shape in ((10, 6), (10, 6), (6, 10))]
    weights, z, w1, w3, w2 = (t.requires_grad_() for t in tensors)
    return z, indices, weights, w1, w3, w2


@pytest.mark.parametrize("activation", [bounded, silu_gate])
@pytest.mark.parametrize("loads", [None, [9.0, 0.0, 0.0, 0.0, -9.0]])
def test_grouped_form_equals_the_definition_with_gradients(activation, loads):
    args = inputs(17, 5, 2, loads)
    got, want = grouped_experts(*args, activation), naive_experts(*args, activation)
    assert_close(got, want, KEY, "output")
    leaves = [x for x in args if x.requires_grad]
    loss = torch.randn_like(want)
    grads = [torch.autograd.grad((y * loss).sum(), leaves) for y in (got, want)]
    for name, a, b in zip(("z", "weights", "w1", "w3", "w2"), *grads, strict=True):
        assert_close(a, b, KEY, f"d{name}")


@given(st.integers(1, 9), st.integers(1, 6), st.data())
def test_any_load_is_exact(tokens, num_experts, data):
    fan_out = data.draw(st.integers(1, num_experts))
    args = inputs(tokens, num_experts, fan_out)
    assert_close(grouped_experts(*args, bounded), naive_experts(*args, bounded), KEY)


def test_order_of_the_tokens_does_not_matter():
    z, indices, weights, *matrices = inputs(12, 4, 2)
    order = torch.randperm(12)
    whole = grouped_experts(z, indices, weights, *matrices, bounded)
    moved = grouped_experts(z[order], indices[order], weights[order], *matrices, bounded)
    assert_close(moved, whole[order], KEY)
