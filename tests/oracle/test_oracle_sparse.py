"""The lightning indexer and sparse attention against transformers' deepseek_v32, rotation off, in float32.

DeepSeek-V3.2 has no output gate, and its indexer is run without gradients, so both are left out here.

Shape legend: B batch, T tokens, S tokens that can be selected, D hidden width.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from compare import difference, within
from test_oracle_kimi_linear import backward, randomise, toy_config, weights
from torch import Tensor

from gossamer.config.model import DSAConfig, ModelConfig
from gossamer.model.gated_dsa import GatedMLA
from gossamer.ops.dsa import index_scores, naive_index_scores, naive_select, select_mask

pytestmark = pytest.mark.oracle
OUTSIDE = "transformers 5.24.0 deepseek_v32"
TOKENS = 70


def sparse_config(top_k: int) -> ModelConfig:
    """Sixteen indexer heads: with few, all ReLUs of a pair are often zero at once, and the order of such
    ties is this project's rule (lower index first) but undefined in the outside implementation.
    """
    base = toy_config(q_lora_rank=20)
    dsa = DSAConfig(num_heads=16, head_dim=16, top_k=top_k, layers=(2,), k_norm_bias=True)
    return replace(base, dsa=dsa, mla=replace(base.mla, output_gate=False))


def their_config(config: ModelConfig) -> dict:
    mla, dsa = config.mla, config.dsa
    assert dsa is not None
    return {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": mla.num_heads,
        "num_key_value_heads": mla.num_heads,
        "kv_lora_rank": mla.kv_lora_rank,
        "q_lora_rank": mla.q_lora_rank,
        "qk_rope_head_dim": mla.qk_rope_head_dim,
        "qk_nope_head_dim": mla.qk_nope_head_dim,
        "v_head_dim": mla.v_head_dim,
        "index_topk": dsa.top_k,
        "index_head_dim": dsa.head_dim,
        "index_n_heads": dsa.num_heads,
    }


def sparse_case(top_k: int, seed: int, ask) -> tuple[GatedMLA, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(our layer, inputs, their results)."""
    config = sparse_config(top_k)
    module = GatedMLA(config, 2)
    randomise(module, seed)
    torch.manual_seed(seed)
    x, probe = (torch.randn(2, TOKENS, config.hidden_size).numpy() for _ in range(2))
    arrays = {"x": x, "probe": probe} | weights(module)
    assert config.dsa is not None
    options = {"config": their_config(config), "k_norm_eps": config.dsa.k_norm_eps}
    theirs = ask("transformers", "transformers_worker.py", "sparse_attention", arrays, **options)
    return module, arrays, theirs


def our_scores(module: GatedMLA, x: Tensor, form) -> Tensor:
    """[B, T, S], -inf for future tokens."""
    assert module.indexer is not None
    index = module.indexer(x, module.q_a_layernorm(module.q_a_proj(x)))
    return form(index.queries, index.keys, index.weights)


def chosen_mask(chosen: np.ndarray) -> Tensor:
    """Their lists [B, T, k] as [B, T, S] bool; early queries list future tokens, which the mask hides."""
    picked = torch.zeros(chosen.shape[0], TOKENS, TOKENS, dtype=torch.bool)
    picked.scatter_(-1, torch.from_numpy(chosen).long(), True)
    return picked & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()


@pytest.mark.parametrize("seed", [40, 41])
def test_scores_and_selection(seed: int, ask, held) -> None:
    module, arrays, theirs = sparse_case(12, seed, ask)
    x = torch.from_numpy(arrays["x"])
    wanted = chosen_mask(theirs["chosen"])
    with torch.no_grad():
        for name, form in {"naive": naive_index_scores, "vectorised": index_scores}.items():
            scores = our_scores(module, x, form)
            finite = torch.where(scores.isfinite(), scores, 0.0)
            held(finite, theirs["scores"], f"lightning indexer, {name}", "scores", OUTSIDE, "layer")
            assert torch.equal(naive_select(scores, 12), wanted)
            assert torch.equal(select_mask(scores, 12), wanted)


@pytest.mark.parametrize("top_k", [4, 12, TOKENS])
def test_sparse_attention(top_k: int, ask, held) -> None:
    module, arrays, theirs = sparse_case(top_k, 42, ask)
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    y = module(x)
    mechanism = "sparse attention" if top_k < TOKENS else "sparse attention, everything selected"
    held(y, theirs["out"], mechanism, "output", OUTSIDE, "layer")
    ours = backward(y, torch.from_numpy(arrays["probe"]), module, x)
    assert {n for n in theirs if n.startswith("grad.")} == set(ours)
    for n, g in ours.items():
        held(g, theirs[n], mechanism, "gradients", OUTSIDE, "layer_gradients")
    with torch.no_grad():
        dense = module(x, mode="dense")
    if top_k >= TOKENS:
        held(dense, theirs["out"], "dense attention where top-k covers all", "output", OUTSIDE, "layer")
    else:
        assert difference(dense, theirs["out"]).rel_rms > 0.01, "the selection changed nothing"


@pytest.mark.parametrize("kind", ["no relu", "no mean removal", "one token short", "head weights ignored"])
def test_a_broken_indexer_is_seen(kind: str, ask) -> None:
    module, arrays, theirs = sparse_case(12, 43, ask)
    x = torch.from_numpy(arrays["x"])
    assert module.indexer is not None
    with torch.no_grad():
        assert within(difference(module(x), theirs["out"]), "layer")
        if kind == "one token short":
            module.indexer.config = replace(module.indexer.config, top_k=11)
        elif kind == "no mean removal":
            norm = module.indexer.k_norm
            norm.forward = lambda k: (
                k * torch.rsqrt(k.square().mean(-1, True) + norm.eps) * norm.weight + norm.bias
            )
        elif kind == "head weights ignored":
            module.indexer.weights_proj.weight.zero_().add_(0.1)
        else:
            assert kind == "no relu"
            index = module.indexer(x, module.q_a_layernorm(module.q_a_proj(x)))
            dots = torch.einsum("btjd,bsd->btsj", index.queries, index.keys)
            linear = torch.einsum("btsj,btj->bts", dots, index.weights)
            blocked = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            assert not torch.equal(
                select_mask(linear.masked_fill(blocked, -torch.inf), 12), chosen_mask(theirs["chosen"])
            )
            return
        broken = difference(module(x), theirs["out"])
    assert not within(broken, "layer")
    assert broken.rel_rms > 0.01
