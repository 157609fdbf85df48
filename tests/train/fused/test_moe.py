"""Routed experts, router and MXFP4 values of the fused network against their definitions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.mx import MXError
from gossamer.mx.tensor import fake_quant
from gossamer.ops import router
from gossamer.train.fused.moe import experts, quantised, route

RULES = ["floor", "even", "rceil"]


def close(got: Tensor, exact: Tensor, least: float = 1e-3, relative: float = 1e-5) -> None:
    """Within `relative` of the scale: the largest value, but `least` where terms of that size may cancel."""
    limit = relative * max(least, float(exact.detach().abs().max()))
    torch.testing.assert_close(got.detach().double(), exact.detach(), rtol=0, atol=limit)


def exact_experts(
    z: Tensor,
    indices: Tensor,
    weights: Tensor,
    w1: Tensor,
    w3: Tensor,
    w2: Tensor,
    beta: float,
    linear: float | None,
) -> Tensor:
    """The formula of `naive_experts` and `situ` in float64, every expert on every token."""
    chosen = torch.zeros(len(z), len(w1), dtype=torch.float64).scatter_add(1, indices, weights)
    y = torch.zeros_like(z)
    for e in range(len(w1)):
        gate, up = F.linear(z, w1[e]), F.linear(z, w3[e])
        up = up if linear is None else linear * torch.tanh(up / linear)
        y = y + chosen[:, e : e + 1] * F.linear(
            beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * up, w2[e]
        )
    return y


@given(
    tokens=st.sampled_from([1, 3, 17, 100, 300]),
    per_token=st.integers(1, 4),
    num_experts=st.sampled_from([4, 5, 16]),
    width=st.sampled_from([1, 16, 33, 128]),
    inner=st.sampled_from([1, 8, 47, 128, 300]),
    linear_beta=st.sampled_from([None, 25.0]),
    size=st.sampled_from([0.1, 1.0, 20.0]),
    seed=st.integers(0, 1000),
)
@example(400, 4, 16, 128, 128, 25.0, 1.0, 0)
@example(3, 1, 16, 128, 8, None, 20.0, 1)
def test_experts(
    tokens: int,
    per_token: int,
    num_experts: int,
    width: int,
    inner: int,
    linear_beta: float | None,
    size: float,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    # The square leaves some experts with few tokens or none.
    crowded = torch.rand(tokens, num_experts) * torch.linspace(0.01, 1, num_experts) ** 2
    indices = crowded.topk(per_token).indices
    z, weights = torch.randn(tokens, width) * size, torch.rand(tokens, per_token)
    w1, w3 = (torch.randn(num_experts, inner, width) / width**0.5 for _ in range(2))
    w2, dy = torch.randn(num_experts, width, inner) / inner**0.5, torch.randn(tokens, width)
    leaves = [t.requires_grad_() for t in (z, weights, w1, w3, w2)]
    y = experts(z, indices, *leaves[1:], 4.0, linear_beta)
    got = torch.autograd.grad(y, leaves, dy)
    twins = [t.detach().double().requires_grad_() for t in leaves]
    exact = exact_experts(twins[0], indices, *twins[1:], 4.0, linear_beta)
    want = torch.autograd.grad(exact, twins, dy.double())
    close(y, exact)
    # The gradient of a saturated gate goes with e^-g: a relative error as large as g's absolute one, which
    # grows with the inputs.
    relative = 1e-5 * (1 + size / 4)
    for one, other in zip(got, want, strict=True):
        close(one, other, max(1.0, size), relative)


def test_experts_repeat_themselves() -> None:
    torch.manual_seed(1)
    z, indices, weights = torch.randn(200, 32), torch.rand(200, 8).topk(3).indices, torch.rand(200, 3)
    matrices = [torch.randn(8, 24, 32), torch.randn(8, 24, 32), torch.randn(8, 32, 24)]
    leaves = [t.requires_grad_() for t in (z, weights, *matrices)]
    runs = []
    for _ in range(2):
        y = experts(z, indices, *leaves[1:], 4.0, 25.0)
        runs.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


def test_far_activations_stay_finite() -> None:
    z = torch.tensor([[1e4], [-1e4], [60.0], [-60.0], [0.0]], requires_grad=True)
    one = torch.ones(1, 1, 1)
    y = experts(z, torch.zeros(5, 1, dtype=torch.int64), torch.ones(5, 1), one, one, one, 4.0, 25.0)
    y.sum().backward()
    want = torch.tensor([[100.0], [0], [4 * 25 * torch.tanh(torch.tensor(2.4))], [0], [0]])
    torch.testing.assert_close(y.detach(), want)
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_experts_refuse() -> None:
    z, weights, one = torch.zeros(2, 4), torch.ones(2, 1), torch.zeros(3, 5, 4)
    indices = torch.zeros(2, 1, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"w1 and w3 must be \[E, I, Z\]"):
        experts(z, indices, weights, one, one, one, 4.0, None)
    with pytest.raises(ValueError, match=r"expert 3 is outside 0\.\.2"):
        experts(z, indices + 3, weights, one, one, one.mT, 4.0, None)
    with pytest.raises(ValueError, match=r"weights are \[2, 1\], but indices \[2, 2\]"):
        experts(z, indices.expand(2, 2), weights, one, one, one.mT, 4.0, None)
    with pytest.raises(ValueError, match="z holds 6 values, expected 8"):
        experts(torch.zeros(2, 3), indices, weights, one, one, one.mT, 4.0, None)


@given(
    tokens=st.sampled_from([1, 3, 17, 100]),
    width=st.sampled_from([1, 16, 33, 256]),
    num_experts=st.sampled_from([4, 7, 16]),
    per_token=st.integers(1, 4),
    renormalize=st.booleans(),
    scaling=st.sampled_from([1.0, 2.5]),
    seed=st.integers(0, 1000),
)
def test_route(
    tokens: int, width: int, num_experts: int, per_token: int, renormalize: bool, scaling: float, seed: int
) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(tokens, width), torch.randn(num_experts, width) / width**0.5
    bias, dweights = torch.randn(num_experts) * 0.1, torch.randn(tokens, per_token)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    indices, weights = route(
        x, weight, bias, experts_per_token=per_token, renormalize=renormalize, scaling=scaling
    )
    got = torch.autograd.grad(weights, leaves, dweights)
    twins = [t.detach().double().requires_grad_() for t in leaves]
    scores = torch.sigmoid(F.linear(*twins))
    # The choice is judged by the score it reaches: rounding may order two near experts either way.
    reached = (scores + bias.double()).gather(1, indices)
    best = (scores + bias.double()).topk(per_token).values
    torch.testing.assert_close(reached, best, rtol=0, atol=1e-6)
    assert all(len(set(row)) == per_token for row in indices.tolist())
    exact = scores.gather(1, indices)
    exact = exact / (exact.sum(-1, keepdim=True) + 1e-20) if renormalize else exact
    close(weights, exact * scaling)
    for one, other in zip(got, torch.autograd.grad(exact * scaling, twins, dweights.double()), strict=True):
        close(one, other, 0.3)


def test_route_as_defined() -> None:
    torch.manual_seed(3)
    x, weight, bias = torch.randn(500, 64), torch.randn(16, 64) * 0.1, torch.randn(16) * 0.1
    indices, weights = route(x, weight, bias, experts_per_token=4, renormalize=True, scaling=1.5)
    want = router.route(x, weight, bias, experts_per_token=4, scaling_factor=1.5)
    assert torch.equal(indices, want.indices)
    torch.testing.assert_close(weights, want.weights)


def test_ties_go_to_the_lower_expert() -> None:
    x, weight = torch.randn(3, 8), torch.zeros(6, 8)
    bias = torch.tensor([0.0, 1, 0, 1, 0, 1])
    indices, _ = route(x, weight, bias, experts_per_token=5, renormalize=True, scaling=1.0)
    assert indices.tolist() == [[1, 3, 5, 0, 2]] * 3


def test_route_refuses() -> None:
    x, weight, bias = torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(3)
    with pytest.raises(ValueError, match="one group of experts, got 2"):
        route(x, weight, bias, experts_per_token=2, renormalize=True, scaling=1.0, num_groups=2)
    with pytest.raises(ValueError, match="cannot have 4 of 3 experts"):
        route(x, weight, bias, experts_per_token=4, renormalize=True, scaling=1.0)
    with pytest.raises(ValueError, match="bias holds 4 values, expected 3"):
        route(x, weight, torch.zeros(4), experts_per_token=2, renormalize=True, scaling=1.0)


def same_bits(one: Tensor, other: Tensor) -> bool:
    nan = one.isnan()
    return torch.equal(nan, other.isnan()) and torch.equal(
        one.masked_fill(nan, 0).view(torch.int32), other.masked_fill(nan, 0).view(torch.int32)
    )


@given(rule=st.sampled_from(RULES), blocks=st.integers(1, 40), seed=st.integers(0, 10_000))
def test_quantised_random_bits(rule, blocks: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(1 << 31), 1 << 31, (blocks, 32), generator=generator, dtype=torch.int64)
    # Blocks of like size: all of one exponent and below, where an element is more than zero.
    exponent = torch.randint(0, 256, (blocks, 1), generator=generator)
    near = (exponent - torch.randint(0, 5, (blocks, 32), generator=generator)).clamp(min=0)
    bits = torch.where(
        torch.rand(blocks, 1, generator=generator) < 0.8, bits & ~0x7F800000 | near << 23, bits
    )
    x = bits.to(torch.int32).view(torch.float32)
    assert same_bits(quantised(x, rule), fake_quant(x, "mxfp4", rule))


@pytest.mark.parametrize("rule", RULES)
def test_quantised_special_values(rule) -> None:
    tiny, huge, inf, nan = 1e-45, 3.4028235e38, float("inf"), float("nan")
    points = [
        0.0,
        -0.0,
        tiny,
        -tiny,
        1.1754944e-38,
        -5e-39,
        huge,
        -huge,
        0.25,
        0.75,
        1.25,
        2.5,
        5.0,
        6.0,
        7.0,
    ]
    rows = [[p] * 32 for p in points] + [
        (points * 3)[:32],
        [0.0] * 31 + [inf],
        [1.0] * 31 + [nan],
        [-0.0] * 32,
    ]
    rows += [
        [v * s for v in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0)] * 4
        for s in (1.0, -1.0, 2**-126, 2**125)
    ]
    x = torch.tensor(rows, dtype=torch.float32)
    assert same_bits(quantised(x, rule), fake_quant(x, "mxfp4", rule))


def test_quantised_of_normal_weights() -> None:
    x = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(0)) * 0.02
    for rule in RULES:
        assert same_bits(quantised(x, rule), fake_quant(x, "mxfp4", rule))
    assert not quantised(x.requires_grad_(), "even").requires_grad


def test_quantised_refuses() -> None:
    with pytest.raises(MXError, match="blocks of 32 float32"):
        quantised(torch.zeros(4, 33), "even")
    with pytest.raises(MXError, match="blocks of 32 float32"):
        quantised(torch.zeros(32, dtype=torch.float64), "even")
    with pytest.raises(MXError, match="unknown scale rule 'up'"):
        quantised(torch.zeros(32), "up")
