"""Random K3-architecture checkpoints, written here, through llama.cpp's converter into llama.cpp.

Attention residuals, the output gates, latent MoE, SiTU, the bounded decay gate and packed MXFP4 are compared
here.  llama.cpp has no sparse layers; test_oracle_sparse.py covers those.

Two things of its arithmetic are given to our model for the comparison: the eps values (make_k3.py), and, for
packed experts, the rounding of expert inputs to eight bits in blocks of 32, which its MXFP4 product needs.
Such a rounding is a step: where a value lies on the edge of two codes the last bit of a sum decides, and what
comes after that token moves with it.  So packed experts have a tight bound on the median and a wider one on
all entries; plain BF16 experts, which are not rounded, have the tight bound on everything.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import make_k3
import outside
import pytest
import torch
from compare import Row, difference, within
from llama import NUM_PROBS, Completion, LlamaServer
from torch import Tensor

from gossamer.model import Transformer
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.latent_moe import Experts
from gossamer.model.load import load

pytestmark = pytest.mark.oracle
OUTSIDE = "llama.cpp (llama-cpp-python 0.3.36)"
NUM_TOKENS = 24
PROMPT_LENGTHS = (1, 2, 7, 33, 100)
# No deep packed case: with random deep weights one rounding step of llama.cpp's changes which experts later
# No deep packed case: with random deep weights one rounding step of llama.cpp changes which experts later
CASES = [("small", "bf16"), ("small", "mxfp4"), ("deep", "bf16")]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One checkpoint and what llama.cpp said about it."""

    experts: str
    folder: Path
    answers: list[tuple[list[int], Completion]]


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every checkpoint, converted in one process: it spends its time on imports."""
    source, python = outside.llama_source(), outside.python("transformers")
    folder = tmp_path_factory.mktemp("k3")
    for shape, experts in CASES:
        make_k3.write(folder / f"{shape}-{experts}", make_k3.config(shape, experts), seed=50)
    command = [str(python), str(outside.HERE / "convert_k3.py"), str(source)]
    done = subprocess.run(
        [*command, *(str(folder / "-".join(case)) for case in CASES)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module", params=CASES, ids=["-".join(case) for case in CASES])
def case(request: pytest.FixtureRequest, converted: Path) -> Case:
    name, experts = "-".join(request.param), request.param[1]
    generator = torch.Generator().manual_seed(51)
    prompts = [torch.randint(300, (n,), generator=generator).tolist() for n in PROMPT_LENGTHS]
    binary = outside.llama_source() / "build" / "bin" / "llama-server"
    with LlamaServer(binary, converted / f"{name}.gguf", converted / f"{name}.log") as server:
        answers = [(prompt, server.complete(prompt, NUM_TOKENS)) for prompt in prompts]
    return Case(experts=experts, folder=converted / name, answers=answers)


def q8_0(x: Tensor) -> Tensor:
    """x [..., 32n] rounded as llama.cpp does before a product with MXFP4: int8 with a float16 scale."""
    blocks = x.float().unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scale > 0, blocks / scale, 0.0).round()
    return (codes * scale.half().float()).flatten(-2).to(x.dtype)


def our_model(case: Case, *, rounded: bool = True) -> Transformer:
    """Loaded from the same files; ``rounded`` gives packed experts llama.cpp's eight-bit inputs."""
    rounded = rounded and case.experts == "mxfp4"
    model = load(case.folder, mxfp8_activations=rounded)
    for module in model.modules():
        if rounded and isinstance(module, Experts):
            module._round_activations = q8_0
    return model


@torch.no_grad()
def logprobs_along(model: Transformer, prompt: list[int], tokens: list[int]) -> Tensor:
    """Log-probabilities [len(tokens), V] before each token: prefill of the prompt, then token by token."""
    cache = model.new_cache(1)
    rows = [model(torch.tensor([prompt]), cache, logits_for="last")]
    rows += [model(torch.tensor([[t]]), cache) for t in tokens[:-1]]
    return torch.cat(rows, 1)[0].log_softmax(-1)


def figures(model: Transformer, case: Case) -> tuple[Tensor, Tensor, list[float]]:
    """(ours, theirs) for every top-ten entry [N], and our margin wherever the greedy token differs."""
    ours, theirs, margins = [], [], []
    for prompt, answer in case.answers:
        rows = logprobs_along(model, prompt, answer.tokens)
        for row, token, top in zip(rows, answer.tokens, answer.top, strict=True):
            ours.append(row[torch.tensor([i for i, _ in top])])
            theirs.append(torch.tensor([p for _, p in top]))
            if int(row.argmax()) != token:
                margins.append(float(row.max() - row[token]))
    return torch.cat(ours), torch.cat(theirs), margins


def test_same_tokens_and_logprobs(case: Case, record: Callable[[Row], None]) -> None:
    num_tokens = sum(len(answer.tokens) for _, answer in case.answers)
    assert num_tokens >= NUM_TOKENS * len(PROMPT_LENGTHS) // 2, "llama.cpp stopped early"
    ours, theirs, margins = figures(our_model(case), case)
    packed = case.experts == "mxfp4"
    found, tolerance = difference(ours, theirs), "llama_mxfp4" if packed else "llama"
    median = float((ours - theirs).abs().median())
    name = f"K3, {case.experts} experts" + (" with llama.cpp's rounding of their inputs" if packed else "")
    print(f"{name}: {num_tokens} greedy tokens, {len(margins)} differ, median {median:.1e}, {found}")
    record(
        Row(
            mechanism=name,
            quantity=f"top-{NUM_PROBS} log-probabilities, median {median:.0e}",
            outside=OUTSIDE,
            difference=found,
            tolerance=tolerance,
        )
    )
    assert within(found, tolerance), found
    assert median < 1e-4
    if packed:
        # After such a step a greedy token may differ, where our two best are closer than the step.
        assert len(margins) <= num_tokens // 20, "too many greedy tokens differ"
        assert all(margin <= 2 * found.max_abs for margin in margins), margins
    else:
        assert not margins, "a greedy token differs"


def break_nibbles(model: Transformer) -> None:
    for module in model.modules():
        if isinstance(module, Experts):
            for name in ("w1", "w2", "w3"):
                packed = getattr(module, f"{name}_packed")
                packed.copy_((packed >> 4) | (packed << 4))


def break_scales(model: Transformer) -> None:
    for module in model.modules():
        if isinstance(module, Experts):
            module.w2_scale.copy_(module.w2_scale.roll(1, -1))


def break_gate(model: Transformer) -> None:
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.g_proj.weight)


def break_mix(model: Transformer) -> None:
    torch.nn.init.zeros_(model.model.output_attn_res_proj.weight)


def break_selection_bias(model: Transformer) -> None:
    for layer in model.model.layers:
        if layer.is_moe:
            layer.block_sparse_moe.gate.e_score_correction_bias.zero_()


def break_decay(model: Transformer) -> None:
    for module in model.modules():
        if isinstance(module, KimiDeltaAttention):
            module.A_log.zero_()


def break_gate_and_up(model: Transformer) -> None:
    for layer in model.model.layers:
        if layer.is_moe:
            shared = layer.block_sparse_moe.shared_experts
            shared.gate_proj, shared.up_proj = shared.up_proj, shared.gate_proj


MUTATIONS = [
    break_nibbles,
    break_scales,
    break_gate,
    break_mix,
    break_selection_bias,
    break_decay,
    break_gate_and_up,
]


@pytest.mark.parametrize("mutation", MUTATIONS)
@torch.no_grad()
def test_a_broken_model_is_seen(case: Case, mutation: Callable[[Transformer], None]) -> None:
    packed = case.experts == "mxfp4"
    if not packed and mutation in (break_nibbles, break_scales):
        pytest.skip("only packed experts have nibbles and scales")
    model = our_model(case)
    mutation(model)
    ours, theirs, _ = figures(model, case)
    found = difference(ours, theirs)
    print(mutation.__name__, found)
    assert not within(found, "llama_mxfp4" if packed else "llama")
    assert float((ours - theirs).abs().median()) > 1e-2


def test_the_rounding_is_what_packed_experts_need(case: Case) -> None:
    """Without it packed experts are apart by about its size, so the tight figures above are no accident."""
    if case.experts != "mxfp4":
        pytest.skip("plain experts are multiplied with unrounded inputs")
    ours, theirs, _ = figures(our_model(case, rounded=False), case)
    assert float((ours - theirs).abs().median()) > 1e-3
