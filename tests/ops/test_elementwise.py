import math

import pytest
import torch

from gossamer.ops.attn_residual import mix, mix_naive
from gossamer.ops.rmsnorm import l2_normalise, rms_norm
from gossamer.ops.situ import silu_gate, situ
from numerics import EXACT, assert_close, assert_within


def scalar_situ(gate, up, beta, linear_beta):
    bounded = beta * math.tanh(gate / beta) / (1 + math.exp(-gate))
    return bounded * (up if linear_beta is None else linear_beta * math.tanh(up / linear_beta))


@pytest.mark.parametrize("linear_beta", [25.0, None])
def test_situ_equals_its_formula_with_gradients(linear_beta):
    gate = (torch.randn(40, dtype=torch.float64) * 4).requires_grad_()
    up = (torch.randn(40, dtype=torch.float64) * 20).requires_grad_()
    want = torch.tensor(
        [scalar_situ(g, u, 4.0, linear_beta) for g, u in zip(gate.tolist(), up.tolist(), strict=True)],
        dtype=torch.float64,
    )
    g32, u32 = gate.detach().float().requires_grad_(), up.detach().float().requires_grad_()
    got = situ(g32, u32, 4.0, linear_beta)
    assert_close(got, want, ("situ", "float32", "fused"), "value")
    high = 4.0 * torch.tanh(gate / 4.0) * torch.sigmoid(gate)
    high = high * (up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta))
    weight = torch.randn(40, dtype=torch.float64)
    want_grads = torch.autograd.grad((high * weight).sum(), (gate, up))
    got_grads = torch.autograd.grad((got * weight.float()).sum(), (g32, u32))
    for a, b in zip(got_grads, want_grads, strict=True):
        assert_close(a, b, ("situ", "float32", "fused"), "gradient")


def test_situ_is_bounded_and_keeps_the_dtype():
    y = situ(torch.full((3,), 1e4), torch.full((3,), -1e4), 4.0, 25.0)
    assert y.tolist() == [-100.0] * 3
    assert situ(y.bfloat16(), y.bfloat16(), 4.0, 25.0).dtype == torch.bfloat16
    assert silu_gate(y.bfloat16(), y.bfloat16()).dtype == torch.bfloat16


def test_rms_norm_rounds_before_the_weight():
    x = (torch.randn(64, 32) * 3).bfloat16()
    weight = torch.randn(32).bfloat16()
    x32 = x.float()
    unit = x32 / torch.sqrt(x32.square().mean(-1, keepdim=True) + 1e-5)
    want = unit.bfloat16() * weight
    other = (unit * weight.float()).bfloat16()
    got = rms_norm(x, weight, 1e-5)
    assert got.dtype == torch.bfloat16
    assert (got != want).sum() <= 2  # rsqrt and division may differ in the last float32 bit before rounding
    assert (other != want).sum() > 20


def test_rms_norm_gradients_equal_the_formula():
    x, weight = torch.randn(5, 3, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    want = weight * (x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5))
    got = rms_norm(x, weight, 1e-5)
    loss = torch.randn_like(want)
    assert_close(got, want, ("rmsnorm", "float32", "fused"), "value")
    grads = [torch.autograd.grad((y * loss).sum(), (x, weight)) for y in (got, want)]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b, ("rmsnorm", "float32", "fused"), "gradient")


def test_l2_epsilon_is_inside_the_root():
    assert l2_normalise(torch.tensor([3e-3, 4e-3]), 1e-6).tolist() == pytest.approx(
        [3e-3 / math.sqrt(26e-6), 4e-3 / math.sqrt(26e-6)], rel=1e-5
    )


@pytest.mark.parametrize("count", [2, 3, 5])
def test_mix_equals_its_definition_with_gradients(count):
    candidates = [torch.randn(2, 3, 8, requires_grad=True) for _ in range(count)]
    norm, proj = torch.randn(8, requires_grad=True), torch.randn(1, 8, requires_grad=True)
    args = [*candidates, norm, proj]
    got, want = mix(candidates, norm, proj, 1e-5), mix_naive(candidates, norm, proj, 1e-5)
    key = ("attn_residual", "float32", "vectorised")
    assert_close(got, want, key, "value")
    loss = torch.randn_like(want)
    grads = [torch.autograd.grad((y * loss).sum(), args) for y in (got, want)]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b, key, "gradient")


def test_mix_of_one_candidate_is_the_identity():
    x = torch.randn(2, 3, 8)
    assert_within(mix([x], torch.randn(8), torch.randn(1, 8), 1e-5), x, EXACT, "mix")
    assert_close(
        mix_naive([x], torch.randn(8), torch.randn(1, 8), 1e-5), x, ("attn_residual", "float32", "vectorised")
    )
