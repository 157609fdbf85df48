import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.ops.errors import ShapeError
from gossamer.ops.kda import bounded_decay, chunk_kda, log_decay, naive_kda, recurrent_kda, softplus_decay
from gossamer.ops.kda.triangular import unit_lower_inverse
from gossamer.ops.rmsnorm import l2_normalise
from numerics import assert_close

NAMES = ("q", "k", "v", "g", "beta", "state")


def inputs(batch, tokens, heads, width, values, bound, seed=0):
    r = torch.Generator().manual_seed(seed)
    q = l2_normalise(torch.randn(batch, tokens, heads, width, generator=r), 1e-6) * width**-0.5
    k = l2_normalise(torch.randn(batch, tokens, heads, width, generator=r), 1e-6)
    v = torch.randn(batch, tokens, heads, values, generator=r)
    z = torch.randn(batch, tokens, heads, width, generator=r) * 2
    g = log_decay(z, torch.empty(heads).uniform_(1, 16, generator=r).log(), bound)
    beta = torch.rand(batch, tokens, heads, generator=r)
    state = torch.randn(batch, heads, width, values, generator=r)
    return [x.detach().requires_grad_() for x in (q, k, v, g, beta, state)]


def loss_gradients(args, outputs):
    r = torch.Generator().manual_seed(7)
    loss = sum((x * torch.randn(x.shape, generator=r)).sum() for x in outputs)
    return torch.autograd.grad(loss, args)


def check(args, got, form):
    want = naive_kda(*args)
    for name, a, b in zip(("o", "state"), got, want, strict=True):
        assert_close(a, b, ("kda", "float32", form), name)
    for name, a, b in zip(NAMES, loss_gradients(args, got), loss_gradients(args, want), strict=True):
        operator = "kda_decay_grad" if name == "g" else "kda_grad"
        assert_close(a, b, (operator, "float32", "chunk"), f"{form} d{name}")


@pytest.mark.parametrize("bound", [-5.0, None])
@pytest.mark.parametrize("tokens", [1, 63])
def test_recurrent_form_equals_the_definition(tokens, bound):
    args = inputs(2, tokens, 2, 16, 12, bound)
    check(args, recurrent_kda(*args), "recurrent")


@pytest.mark.parametrize("bound", [-5.0, None])
@pytest.mark.parametrize("tokens", [1, 63, 100])
@pytest.mark.parametrize("chunk_size", [1, 8, 16, 32, 64, 128])
def test_chunk_form_equals_the_definition_for_any_chunk_size(chunk_size, tokens, bound):
    args = inputs(1, tokens, 2, 12, 20, bound, seed=tokens)
    check(args, chunk_kda(*args, chunk_size=chunk_size, gate_lower_bound=bound), "chunk")


def test_zero_start_state_is_the_default():
    args = inputs(2, 40, 2, 8, 8, -5.0)
    without = chunk_kda(*args[:5], gate_lower_bound=-5.0)
    with_zeros = chunk_kda(*args[:5], torch.zeros(2, 2, 8, 8), gate_lower_bound=-5.0)
    assert torch.equal(without[0], with_zeros[0])
    assert_close(without[0], naive_kda(*args[:5])[0], ("kda", "float32", "chunk"))


@pytest.mark.parametrize("bound", [-5.0, None])
def test_strongest_decay_stays_finite_in_every_chunk_size(bound):
    """Every channel at the bound for 128 tokens: the plain factorisation exp(-G) would overflow at 18."""
    args = inputs(1, 128, 1, 8, 8, bound)
    args[3] = torch.full_like(args[3], -5.0).requires_grad_()
    for chunk_size in (16, 64, 128):
        check(args, chunk_kda(*args, chunk_size=chunk_size, gate_lower_bound=bound), "chunk")


def test_unbounded_gate_may_forget_everything_in_one_token():
    args = inputs(1, 50, 1, 8, 8, None)
    args[3] = torch.where(torch.rand(args[3].shape) < 0.2, -300.0, args[3].detach()).requires_grad_()
    check(args, chunk_kda(*args, chunk_size=32), "chunk")


def test_equal_keys_without_decay_do_not_lose_digits():
    """The worst case of the triangular system: every off-diagonal entry is 1."""
    args = inputs(1, 64, 1, 8, 8, -5.0)
    args[1] = args[1][:, :1].expand(-1, 64, -1, -1).detach().clone().requires_grad_()
    args[3] = torch.zeros_like(args[3]).requires_grad_()
    args[4] = torch.ones_like(args[4]).requires_grad_()
    got = chunk_kda(*args, chunk_size=64, gate_lower_bound=-5.0)
    for a, b in zip(got, naive_kda(*args), strict=True):
        assert_close(a, b, ("kda", "float32", "chunk"))


def test_triangular_inverse_and_its_gradient_equal_torch():
    lower = torch.randn(3, 2, 32, 32).tril(-1).mul_(0.3).double()
    a = lower.float().requires_grad_()
    b = lower.clone().requires_grad_()
    want = torch.linalg.inv(torch.eye(32).double() + b.tril(-1))
    weight = torch.randn_like(want)
    got = unit_lower_inverse(a)
    (da,) = torch.autograd.grad((got * weight.float()).sum(), a)
    (db,) = torch.autograd.grad((want * weight).sum(), b)
    assert_close(got, want, ("kda", "float32", "chunk"), "inverse")
    assert_close(da, db, ("kda_grad", "float32", "chunk"), "inverse gradient")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.sampled_from([8, 32, 64]))
def test_state_carries_over_any_split(lengths, chunk_size):
    args = inputs(1, sum(lengths), 2, 8, 8, -5.0, seed=len(lengths))
    whole, end = naive_kda(*args)
    state, parts, at = args[5], [], 0
    for i, n in enumerate(lengths):
        piece = [x[:, at : at + n] for x in args[:5]]
        if i % 2:
            o, state = recurrent_kda(*piece, state)
        else:
            o, state = chunk_kda(*piece, state, chunk_size=chunk_size, gate_lower_bound=-5.0)
        parts.append(o)
        at += n
    assert_close(torch.cat(parts, 1), whole, ("kda", "float32", "chunk"), "o")
    assert_close(state, end, ("kda", "float32", "chunk"), "state")


def test_decay_gates_are_two_formulas():
    z = torch.tensor([-3.0, 0.0, 2.0]).view(1, 1, 1, 3)
    a_log = torch.tensor([0.5])
    rate = torch.tensor(0.5).exp()
    assert torch.allclose(bounded_decay(z, a_log, -5.0), -5.0 / (1 + torch.exp(-rate * z)))
    assert torch.allclose(softplus_decay(z, a_log), -rate * torch.log1p(z.exp()))
    assert torch.equal(log_decay(z, a_log, None), softplus_decay(z, a_log))
    extreme = bounded_decay(torch.tensor([-1e4, 1e4]).view(1, 1, 1, 2), torch.tensor([2.0]), -5.0)
    assert extreme.min() >= -5.0
    assert extreme.max() <= 0.0


def test_decay_comes_before_the_read():
    """One stored pair, then full forgetting: the delta rule must find nothing to correct."""
    k = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    state = torch.tensor([[3.0, 4.0], [0.0, 0.0]]).view(1, 1, 2, 2)
    v = torch.tensor([10.0, 20.0]).view(1, 1, 1, 2)
    g = torch.full((1, 1, 1, 2), -200.0)
    o, end = naive_kda(k, k, v, g, torch.full((1, 1, 1), 0.5), state)
    assert torch.allclose(o.flatten(), torch.tensor([5.0, 10.0]))
    assert torch.allclose(end[0, 0, 0], torch.tensor([5.0, 10.0]))


def test_chunk_size_must_be_a_power_of_two():
    with pytest.raises(ShapeError, match="power of two, got 24"):
        chunk_kda(*inputs(1, 8, 1, 4, 4, -5.0), chunk_size=24)
