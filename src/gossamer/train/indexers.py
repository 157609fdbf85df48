"""Indexers begun as the attention they select for.

An indexer that starts at random and learns the attention's distribution first learns what most heads look at,
which is nearly everything; the few sharp heads, which copy, weigh little in it.  Here index head j starts as
attention head j, by the best form of its scores that the width of the index keys allows.

Shape legend: N places, D hidden width, Q query latent, J heads, I index key width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.model.gated_dsa import GatedMLA
from gossamer.model.transformer import Transformer
from gossamer.train.fitting import normed, ridge

FIRST = 8
"""Places at the start of a row that are left out: nothing stands before them."""
SHARPNESS = 4.0
"""Of the scores' distribution; measured, see docs/log.md."""


@torch.no_grad()
def fit_indexers(model: Transformer, ids: Tensor) -> None:
    """Set every indexer to the attention of its layer, fitted on rows `ids` [B, T]."""
    for layer in model.model.decoder_layers():
        mla = layer.self_attn
        if isinstance(mla, GatedMLA) and mla.indexer is not None:
            (x,) = normed(model, ids, [layer.input_layernorm])
            _fit(mla, x[:, FIRST:].flatten(0, 1))


def _fit(mla: GatedMLA, x: Tensor) -> None:
    """One layer, from its normed inputs x [N, D]."""
    indexer = mla.indexer
    assert indexer is not None
    query = mla.q_a_layernorm(mla.q_a_proj(x))  # [N, Q]
    forms = _score_forms(mla, x)  # [J, Q, D]
    spread, narrow = _roots(x)
    weighed = _roots(query)[0] @ forms @ spread
    width = indexer.config.head_dim
    right = torch.linalg.svd(weighed.flatten(0, 1), full_matrices=False).Vh[:width]  # [I, D]
    keys = right @ narrow
    size = (x @ keys.T).std(-1).mean()  # the keys are normalised, the scores shall not be
    indexer.wk.weight.copy_(keys)
    indexer.k_norm.weight.fill_(1)
    if indexer.k_norm.bias is not None:
        indexer.k_norm.bias.zero_()
    heads = indexer.config.num_heads
    queries = (forms @ spread @ right.T).transpose(1, 2) * size  # [J, I, Q]
    turns = torch.arange(heads) % len(queries)
    indexer.wq_b.weight.copy_(queries[turns].flatten(0, 1))
    even = ridge(x, torch.ones(len(x), 1))
    indexer.weights_proj.weight.copy_(SHARPNESS * even.expand(heads, -1))


def _score_forms(mla: GatedMLA, x: Tensor) -> Tensor:
    """[J, Q, D]: the score of a query latent and an input, per head, at the mean size of the latents."""
    config = mla.config
    nope, rank = config.qk_nope_head_dim, config.kv_lora_rank
    latent, shared = mla.kv_a_proj_with_mqa.weight.split([rank, config.qk_rope_head_dim])
    inverse = (x @ latent.T).square().mean(-1).add(config.lora_norm_eps).rsqrt().mean()
    latent = latent * mla.kv_a_layernorm.weight[:, None] * inverse
    queries = mla.q_b_proj.weight.unflatten(0, (config.num_heads, -1))
    keys = mla.kv_b_proj.weight.unflatten(0, (config.num_heads, -1))[:, :nope]
    forms = queries[:, :nope].mT @ keys @ latent + queries[:, nope:].mT @ shared
    return forms * config.qk_head_dim**-0.5


def _roots(x: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric root of the second moments of x [N, n], and its inverse."""
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    root = values.clamp(min=1e-6 * float(values[-1])).sqrt()
    return vectors * root @ vectors.T, vectors / root @ vectors.T
