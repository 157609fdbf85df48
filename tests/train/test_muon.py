"""The optimiser's kernels against their formulas in float64, and against the form without kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Parameter

from gossamer.kernels import backend
from gossamer.train import muon
from gossamer.train.muon import COEFFICIENTS, STEPS, MuonAdam


def reference(x: Tensor) -> Tensor:
    """Newton-Schulz of [..., R, C] in float64."""
    a, b, c = COEFFICIENTS
    y = x.double()
    y = y / (y.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = y @ y.mT
        y = a * y + (b * gram + c * (gram @ gram)) @ y
    return y


def named(seed: int) -> dict[str, Parameter]:
    torch.manual_seed(seed)
    shapes = {"wide": (17, 40), "tall": (70, 33), "stack": (3, 20, 20), "vector": (9,), "lm_head": (20, 20)}
    return {name: Parameter(torch.randn(shape)) for name, shape in shapes.items()}


@given(
    stack=st.integers(1, 3),
    rows=st.sampled_from([1, 5, 16, 33, 64, 100, 160]),
    columns=st.sampled_from([1, 7, 16, 48, 64, 129, 400]),
    seed=st.integers(0, 1000),
)
def test_newton_schulz(stack: int, rows: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(stack, rows, columns)
    exact = reference(x)
    backend.load().train.newton_schulz(x, STEPS, COEFFICIENTS)
    torch.testing.assert_close(x.double(), exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", backend.available())
def test_every_build(name: str) -> None:
    x = torch.randn(256, 128)
    exact = reference(x)
    backend.load(name).train.newton_schulz(x, STEPS, COEFFICIENTS)
    torch.testing.assert_close(x.double(), exact, rtol=0, atol=2e-5)


def test_zero_stays_zero() -> None:
    x = torch.zeros(20, 30)
    backend.load().train.newton_schulz(x, STEPS, COEFFICIENTS)
    assert (x == 0).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_steps_agree_with_the_form_without_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # In float64 instead of torch's bfloat16: what is compared is the rest of the update.
    monkeypatch.setattr(muon, "orthogonalise", lambda x: reference(x).float())
    results = []
    for kernels in (backend.load().train, None):
        monkeypatch.setattr(muon, "_kernels", lambda kernels=kernels: kernels)
        own = named(seed)
        optimizer = MuonAdam(own.items(), lr=1e-2, matrix_lr=2e-2)
        torch.manual_seed(seed + 1)
        for _ in range(3):
            for parameter in own.values():
                parameter.grad = torch.randn_like(parameter)
            own["wide"].grad = None
            optimizer.step()
        results.append((own, optimizer))
    (fast, fast_state), (plain, plain_state) = results
    for name in fast:
        torch.testing.assert_close(fast[name], plain[name], rtol=0, atol=2e-5)
        one, other = fast_state.state[fast[name]], plain_state.state[plain[name]]
        assert one.keys() == other.keys()
        for key in one:
            torch.testing.assert_close(one[key], other[key], rtol=1e-5, atol=1e-6)


def test_torch_form_orthogonalises_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "_kernels", lambda: None)
    values = torch.linalg.svdvals(muon.orthogonalise(torch.randn(2, 24, 60)))
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.4


def test_refuses_different_shapes() -> None:
    kernels = backend.load().train
    with pytest.raises(ValueError, match="one shape"):
        kernels.adam_update(*[torch.zeros(n) for n in (3, 3, 4, 3)], 0.9, 0.9, 1.0, 0.1, 1.0, 1e-8)
    with pytest.raises(ValueError, match="a stack of them"):
        kernels.newton_schulz(torch.zeros(3), STEPS, COEFFICIENTS)
