"""Runs in the transformers environment: fla-core's naive KDA functions, with gradients and state.

worker_loop.py says how it is asked.
"""

from __future__ import annotations

import warnings

import torch
from worker_loop import serve

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

LEAVES = ("q", "k", "v", "g", "beta", "state")


def leaves(arrays, names):
    return {n: torch.from_numpy(arrays[n]).float().requires_grad_() for n in names if n in arrays}


def with_gradients(outputs, inputs, arrays):
    """Gradients of sum(output * probe) over every output with a probe."""
    loss = sum((outputs[n] * torch.from_numpy(arrays[f"probe.{n}"])).sum() for n in outputs)
    loss.backward()
    found = {n: t.detach().numpy() for n, t in outputs.items()}
    return found | {f"grad.{n}": t.grad.numpy() for n, t in inputs.items()}


def kda(arrays, *, form, chunk_size=None):
    """form is recurrent or chunk; q arrives normalised and scaled, so the scale is 1."""
    from fla.ops.kda.naive import naive_chunk_kda, naive_recurrent_kda

    x = leaves(arrays, LEAVES)
    inputs = [x[n] for n in LEAVES[:-1]]
    keywords = {"scale": 1.0, "initial_state": x.get("state"), "output_final_state": True}
    if form == "chunk":
        o, state = naive_chunk_kda(*inputs, chunk_size=chunk_size, **keywords)
    else:
        o, state = naive_recurrent_kda(*inputs, **keywords)
    return with_gradients({"o": o, "end": state}, x, arrays)


def gate(arrays, *, lower_bound):
    """z [B, T, H, K] without the bias, a_log [H], dt_bias [H*K]."""
    from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate

    x = leaves(arrays, ("z", "a_log", "dt_bias"))
    if lower_bound is None:
        g = naive_kda_gate(x["z"], x["a_log"], x["dt_bias"])
    else:
        g = naive_kda_lowerbound_gate(x["z"], x["a_log"], x["dt_bias"], lower_bound=lower_bound)
    return with_gradients({"g": g}, x, arrays)


if __name__ == "__main__":
    serve({"kda": kda, "gate": gate})
