"""Kimi Delta Attention and its gates against fla-core's naive functions, in float32.

Shape legend: B batch, T tokens, H heads, K key channels, V value channels.
"""

from __future__ import annotations

import pytest
import torch
from compare import difference, within
from torch import Tensor

from gossamer.ops.kda import chunk_kda, kda_step, log_decay, naive_kda, recurrent_kda
from gossamer.ops.rmsnorm import l2_normalise

pytestmark = pytest.mark.oracle
FLA = "fla-core 0.6.0 naive"
LEAVES = ("q", "k", "v", "g", "beta", "state")


def kda_case(seed: int, tokens: int, *, bounded: bool, first: bool) -> dict[str, Tensor]:
    """Random inputs as a layer makes them, and probes that turn outputs into one loss."""
    torch.manual_seed(seed)
    batch, heads, key, value = 2, 3, 16, 24
    z = torch.randn(batch, tokens, heads, key) * 2 - 1
    x = {
        "q": l2_normalise(torch.randn(batch, tokens, heads, key), 1e-6) * key**-0.5,
        "k": l2_normalise(torch.randn(batch, tokens, heads, key), 1e-6),
        "v": torch.randn(batch, tokens, heads, value),
        "g": log_decay(z, torch.rand(heads), -5.0 if bounded else None),
        "beta": torch.rand(batch, tokens, heads),
    }
    if not first:
        x["state"] = torch.randn(batch, heads, key, value)
    x["probe.o"] = torch.randn(batch, tokens, heads, value)
    x["probe.end"] = torch.randn(batch, heads, key, value)
    return {n: t.detach() for n, t in x.items()}


def run_ours(form, x: dict[str, Tensor]) -> dict[str, Tensor]:
    """Outputs and the gradient of sum(output * probe) for every input."""
    inputs = {n: x[n].clone().requires_grad_() for n in LEAVES if n in x}
    o, end = form(*(inputs.get(n) for n in LEAVES))
    ((o * x["probe.o"]).sum() + (end * x["probe.end"]).sum()).backward()
    return {"o": o, "end": end} | {f"grad.{n}": t.grad for n, t in inputs.items()}


def run_theirs(ask, x: dict[str, Tensor], **options) -> dict:
    arrays = {n: t.numpy() for n, t in x.items()}
    return ask("transformers", "fla_worker.py", "kda", arrays, **options)


FORMS = {
    "naive": naive_kda,
    "recurrent": recurrent_kda,
    "chunk 16": lambda *x: chunk_kda(*x, chunk_size=16),
    "chunk 64": lambda *x: chunk_kda(*x, chunk_size=64),
}


@pytest.mark.parametrize("their_form", ["recurrent", "chunk"])
@pytest.mark.parametrize(("seed", "bounded", "first"), [(0, True, True), (1, True, False), (2, False, False)])
def test_kda_matches_fla_naive(their_form: str, seed: int, bounded: bool, first: bool, ask, held) -> None:
    x = kda_case(seed, 64, bounded=bounded, first=first)
    theirs = run_theirs(ask, x, form=their_form, chunk_size=32 if their_form == "chunk" else None)
    for name, form in FORMS.items():
        ours = run_ours(form, x)
        assert ours.keys() == theirs.keys()
        for quantity, value in theirs.items():
            kind = {"o": "output", "end": "state"}.get(quantity, "gradients")
            held(ours[quantity], value, f"KDA, {name} form", kind, f"{FLA} {their_form}", "kda")


def test_bounded_chunk_form_matches_fla(ask, held) -> None:
    x = kda_case(3, 64, bounded=True, first=False)
    theirs = run_theirs(ask, x, form="recurrent")
    ours = run_ours(lambda *a: chunk_kda(*a, gate_lower_bound=-5.0), x)
    mechanism = "KDA, chunk form, bounded gate"
    for quantity, value in theirs.items():
        kind = {"o": "output", "end": "state"}.get(quantity, "gradients")
        held(ours[quantity], value, mechanism, kind, f"{FLA} recurrent", "kda")


@pytest.mark.parametrize("lower_bound", [-5.0, None])
def test_decay_gates_match_fla(lower_bound: float | None, ask, held) -> None:
    torch.manual_seed(4)
    heads, width = 3, 8
    x = {
        "z": torch.randn(2, 20, heads, width) * 4,
        "a_log": torch.rand(heads) * 2,
        "dt_bias": torch.randn(24),
    }
    probe = torch.randn(2, 20, heads, width)
    arrays = {n: t.numpy() for n, t in x.items()} | {"probe.g": probe.numpy()}
    theirs = ask("transformers", "fla_worker.py", "gate", arrays, lower_bound=lower_bound)
    inputs = {n: t.clone().requires_grad_() for n, t in x.items()}
    g = log_decay(inputs["z"] + inputs["dt_bias"].view(heads, width), inputs["a_log"], lower_bound)
    (g * probe).sum().backward()
    mechanism = "decay gate, softplus" if lower_bound is None else "decay gate, bounded"
    held(g, theirs["g"], mechanism, "output", FLA, "kda")
    for n, t in inputs.items():
        held(t.grad, theirs[f"grad.{n}"], mechanism, "gradients", FLA, "kda")


def decay_after_the_read(q, k, v, g, beta, state):
    """Wrong on purpose: the delta rule reads the state before it decays."""
    out = []
    for t in range(q.shape[1]):
        read = torch.einsum("bhk,bhkv->bhv", k[:, t], state)
        write = beta[:, t].unsqueeze(-1) * (v[:, t] - read)
        state = g[:, t].exp().unsqueeze(-1) * state + k[:, t].unsqueeze(-1) * write.unsqueeze(-2)
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(out, 1), state


def read_before_the_write(q, k, v, g, beta, state):
    """Wrong on purpose: a token does not see what it writes."""
    out = []
    for t in range(q.shape[1]):
        seen = g[:, t].exp().unsqueeze(-1) * state
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], seen))
        _, state = kda_step(q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], state)
    return torch.stack(out, 1), state


def without_the_delta(q, k, v, g, beta, state):
    """Wrong on purpose: plain gated linear attention, nothing is subtracted."""
    out = []
    for t in range(q.shape[1]):
        state = g[:, t].exp().unsqueeze(-1) * state
        state = state + k[:, t].unsqueeze(-1) * (beta[:, t].unsqueeze(-1) * v[:, t]).unsqueeze(-2)
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(out, 1), state


@pytest.mark.parametrize("broken", [decay_after_the_read, read_before_the_write, without_the_delta])
def test_a_broken_recurrence_is_seen(broken, ask) -> None:
    x = kda_case(5, 64, bounded=True, first=False)
    theirs = run_theirs(ask, x, form="recurrent")
    ours = run_ours(broken, x)
    assert not within(difference(ours["o"], theirs["o"]), "kda")
    assert difference(ours["o"], theirs["o"]).rel_rms > 0.01


@pytest.mark.parametrize(("ours_bound", "their_bound"), [(None, -5.0), (-5.0, None)])
def test_the_two_gates_are_told_apart(ours_bound: float | None, their_bound: float | None, ask) -> None:
    torch.manual_seed(6)
    z, a_log, dt_bias = torch.randn(1, 8, 2, 4), torch.rand(2), torch.randn(8)
    arrays = {"z": z.numpy(), "a_log": a_log.numpy(), "dt_bias": dt_bias.numpy(), "probe.g": z.numpy()}
    theirs = ask("transformers", "fla_worker.py", "gate", arrays, lower_bound=their_bound)
    g = log_decay(z + dt_bias.view(2, 4), a_log, ours_bound)
    assert difference(g, theirs["g"]).rel_rms > 0.1
