"""The fused KDA mixer against its definition: outputs and all gradients, token by token in float64.

Shape legend: B batch, T tokens, H heads, K head width, W = H*K.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gossamer.config import presets
from gossamer.kernels import backend
from gossamer.model.kda import KimiDeltaAttention
from gossamer.train.fused import kda as fused

NAMES = ("q", "k", "v", "q_taps", "k_taps", "v_taps", "z", "dt_bias", "a_log", "b", "gate", "o_norm_weight")
EPS: dict[str, float] = {"l2_eps": 1e-6, "norm_eps": 1e-5}

pytestmark = pytest.mark.skipif(not backend.available(), reason="the native kernels are not built")


def convolved(x: Tensor, taps: Tensor) -> Tensor:
    padded = F.pad(x, (0, 0, taps.shape[-1] - 1, 0))
    return F.silu(sum(padded[:, j : j + x.shape[1]] * taps[:, 0, j] for j in range(taps.shape[-1])))


def definition(x: dict[str, Tensor], heads: int, bound: float | None) -> Tensor:
    """The mixer written out in the dtype of its inputs."""
    split = (heads, -1)
    q, k, v = (convolved(x[n], x[f"{n}_taps"]).unflatten(-1, split) for n in "qkv")
    width = q.shape[-1]
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + EPS["l2_eps"]) * width**-0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + EPS["l2_eps"])
    beta, a = torch.sigmoid(x["b"]), x["a_log"].exp().unsqueeze(-1)
    z = (x["z"] + x["dt_bias"]).unflatten(-1, split)
    g = -a * F.softplus(z, threshold=1e9) if bound is None else bound * torch.sigmoid(a * z)
    state = q.new_zeros(q.shape[0], heads, width, width)
    outputs = []
    for t in range(q.shape[1]):
        state = g[:, t].exp().unsqueeze(-1) * state
        error = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        state = state + k[:, t].unsqueeze(-1) * (beta[:, t].unsqueeze(-1) * error).unsqueeze(-2)
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    o = torch.stack(outputs, 1)
    o = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + EPS["norm_eps"]) * x["o_norm_weight"]
    return (o * torch.sigmoid(x["gate"].unflatten(-1, split))).flatten(-2)


def inputs(
    seed: int, tokens: int, *, batch: int = 1, heads: int = 2, width: int = 16, taps: int = 4, **scales: float
) -> dict[str, Tensor]:
    """Random inputs; scales are factors on q, k, v, and z_shift is added to z."""
    torch.manual_seed(seed)
    wide = heads * width
    x = {n: torch.randn(batch, tokens, wide) for n in ("q", "k", "v", "z", "gate")}
    for n in "qkv":
        x[n] *= scales.get(n, 1.0)
        x[f"{n}_taps"] = 0.5 * torch.randn(wide, 1, taps)
    x["z"] = x["z"] * scales.get("z", 1.0) + scales.get("z_shift", 0.0)
    x["dt_bias"], x["a_log"] = 0.3 * torch.randn(wide), 0.3 * torch.randn(heads) + scales.get("a", 0.0)
    x["b"] = torch.randn(batch, tokens, heads)
    x["o_norm_weight"] = 1.0 + 0.2 * torch.randn(width)
    return x


def compare(x: dict[str, Tensor], bound: float | None, tolerance: float = 1e-5) -> None:
    heads = x["b"].shape[-1]
    exact = {n: x[n].double().requires_grad_() for n in NAMES}
    tested = {n: x[n].clone().requires_grad_() for n in NAMES}
    want = definition(exact, heads, bound)
    got = fused.kda_mixer(*tested.values(), num_heads=heads, lower_bound=bound, **EPS)
    grad = torch.randn(want.shape)
    want.backward(grad.double())
    got.backward(grad)
    pairs: dict[str, tuple[Any, Any]] = {n: (exact[n].grad, tested[n].grad) for n in NAMES}
    pairs["o"] = want.detach(), got.detach()
    for name, (expected, actual) in pairs.items():
        assert actual.shape == expected.shape, name
        error = (actual - expected).abs().max() / expected.abs().max().clamp_min(0.01)
        assert error <= tolerance, f"{name}: relative error {error:.2e}"


@pytest.mark.parametrize("tokens", [1, 2, 3, 15, 16, 17, 32, 33, 100])
@pytest.mark.parametrize("bound", [-5.0, None])
def test_lengths(tokens: int, bound: float | None) -> None:
    compare(inputs(tokens, tokens, batch=2), bound)


@pytest.mark.parametrize("shift", [-8.0, -4.0, 0.0, 4.0, 8.0])
@pytest.mark.parametrize("bound", [-5.0, -1.0, -20.0, None])
def test_memory_lengths(shift: float, bound: float | None) -> None:
    """From states that hardly fade to states that one token erases."""
    compare(inputs(7, 70, z_shift=shift), bound)


@pytest.mark.parametrize(
    ("heads", "width", "taps"), [(1, 64, 4), (3, 20, 4), (2, 8, 3), (1, 33, 1), (2, 48, 6)]
)
def test_widths(heads: int, width: int, taps: int) -> None:
    compare(inputs(3, 50, heads=heads, width=width, taps=taps), -5.0)


@pytest.mark.parametrize("scale", [1e-4, 30.0])
def test_norms(scale: float) -> None:
    compare(inputs(4, 40, q=scale, k=scale, v=scale), -5.0)


def test_repeated_keys() -> None:
    """The triangular system of a chunk is worst conditioned when all keys agree and nothing fades."""
    x = inputs(5, 64, z_shift=-8.0)
    x["k"] = x["k"][:, :1].repeat(1, 64, 1)
    x["b"] = x["b"] + 6.0
    compare(x, -5.0, 1e-4)


def mixed_by_layer(layer: KimiDeltaAttention, x: Tensor) -> Tensor:
    """The layer's input [B, T, D] through its projections and the fused mixer, [B, T, W]."""
    kda = layer.config
    projected = (linear(x) for linear in (layer.q_proj, layer.k_proj, layer.v_proj))
    return fused.kda_mixer(
        *projected,
        *(conv.weight for conv in (layer.q_conv1d, layer.k_conv1d, layer.v_conv1d)),
        layer.f_b_proj(layer.f_a_proj(x)),
        layer.dt_bias,
        layer.A_log,
        layer.b_proj(x),
        layer.g_proj(x),
        layer.o_norm.weight,
        num_heads=kda.num_heads,
        lower_bound=kda.gate_lower_bound,
        l2_eps=kda.l2_norm_eps,
        norm_eps=layer.norm_eps,
    )


def test_layer_of_nano() -> None:
    """The layer of `gossamer.model` and the fused mixer inside the same projections."""
    torch.manual_seed(9)
    layer = KimiDeltaAttention(presets.load("nano")).float()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x = torch.randn(1, 512, layer.q_proj.weight.shape[1])
    grad = torch.randn_like(x)
    results = []
    for forward in (layer, lambda x: layer.o_proj(mixed_by_layer(layer, x))):
        layer.zero_grad()
        out = forward(x)
        out.backward(grad)
        grads = {n: p.grad.clone() for n, p in layer.named_parameters() if p.grad is not None}
        results.append(grads | {"out": out.detach()})
    want, got = results
    assert want.keys() == got.keys()
    for name, expected in want.items():
        error = (got[name] - expected).abs().max() / expected.abs().max()
        assert error <= 2e-5, f"{name}: relative error {error:.2e}"


def test_slices_of_a_joint_projection() -> None:
    """Inputs whose rows lie in one wider tensor are read in place."""
    x = inputs(6, 37, batch=2)
    options: dict[str, Any] = {"num_heads": 2, "lower_bound": -5.0, **EPS}
    apart = fused.kda_mixer(**x, **options)
    names = ("q", "k", "v", "z", "gate", "b")
    joint = torch.cat([x[n] for n in names], -1).requires_grad_()
    parts = dict(zip(names, joint.split([x[n].shape[-1] for n in names], -1), strict=True))
    together = fused.kda_mixer(**{**x, **parts}, **options)
    assert torch.equal(apart, together)
    together.sum().backward()
    assert joint.grad is not None
    assert joint.grad.abs().sum(0).sum(0).min() > 0


def test_refusals() -> None:
    x = inputs(8, 5)
    with pytest.raises(ValueError, match="num_heads = 3"):
        fused.kda_mixer(**x, num_heads=3, lower_bound=-5.0, **EPS)
    with pytest.raises(ValueError, match="lower_bound must be negative"):
        fused.kda_mixer(**x, num_heads=2, lower_bound=5.0, **EPS)
    with pytest.raises(ValueError, match="k must be"):
        fused.kda_mixer(**{**x, "k": x["k"][:, 1:]}, num_heads=2, lower_bound=-5.0, **EPS)


@pytest.mark.parametrize("bound", [-5.0, None])
@pytest.mark.parametrize("far", [60.0, 100.0, 1e4])
def test_gates_far_out_have_finite_gradients(bound, far):
    """Inputs of the decay and of both sigmoids beyond the range of exp, on either side."""
    x = inputs(3, 20, heads=2, width=16)
    sign = torch.where(torch.arange(32) % 2 == 0, 1.0, -1.0)
    x["z"], x["gate"], x["b"] = x["z"] + far * sign, x["gate"] + far * sign, x["b"] + far * sign[:2]
    leaves = {n: x[n].clone().requires_grad_() for n in NAMES}
    o = fused.kda_mixer(*leaves.values(), num_heads=2, lower_bound=bound, **EPS)
    grads = torch.autograd.grad(o.square().sum(), list(leaves.values()))
    assert bool(o.isfinite().all())
    for name, grad in zip(NAMES, grads, strict=True):
        assert bool(grad.isfinite().all()), name
