"""Put the parts that copy into a trained model whose attention layers never learned to.

A token said before can only be said again by a head that finds the place where it stood, and for that every
place must tell which tokens came before it.  A run of 19 million tokens found neither half, so its attention
layers did nothing (docs/log.md).  Here both halves are put in, fitted to the activations of that model:

1. The directions of the residual stream that the model uses least are cleared of everything.
2. Two heads of an early KDA layer forget at once and write codes of the last token, and of the one before,
   into these directions.
3. In every attention layer one head starts with keys that are these codes, queries that are the codes which
   the next token would find, and values that are codes of the token itself, turned towards its output row.

Nothing is tied or frozen: all of it is trained from the first step on.

Shape legend: B rows, T tokens, D hidden width, K width of the first code, C candidates of a residual mix,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.model.gated_dsa import GatedMLA
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.layers import RMSNorm
from gossamer.model.transformer import DecoderLayer, Transformer
from gossamer.train.errors import TrainError
from gossamer.train.fitting import candidates, normed, ridge, token_codes

SHIFT_LAYER = 1
"""A KDA layer before the first attention layer; its last two heads are taken."""
MATCH_GAIN = 2.5
"""Of the queries: a place after the same two tokens scores about 15, another one 0."""
VALUE_SCALE = 0.4
"""Of the shift heads' values, small enough for the activation after the convolution to be nearly linear."""
OUTPUT_LEVEL = 1.0
"""What a sure induction head writes, beside the level of the stream."""
MIX_LEVELS = (1.5, 1.0)
"""Of the embeddings and the first snapshot in the input of the attention layers; others have `MIX_REST`."""
MIX_REST = 0.2


@dataclass(frozen=True, kw_only=True)
class Codes:
    """What the shift heads write at every place, [B, T, K] and [B, T, K/2], with a mean square of one."""

    last: Tensor
    before: Tensor

    def here(self, tokens: slice = slice(8, -1)) -> tuple[Tensor, Tensor]:
        """Codes of the last token and the one before it, [N, ...], without the ends of the rows."""
        return self.last[:, tokens].flatten(0, 1), self.before[:, tokens].flatten(0, 1)

    def next(self) -> tuple[Tensor, Tensor]:
        """The same one place later: codes of the token itself and the last one."""
        return self.here(slice(9, None))


@torch.no_grad()
def graft(model: Transformer, ids: Tensor) -> None:
    """Put shift heads and induction heads into a trained model.

    Args:
        model: trained, with KDA layers before its attention layers and attention residuals.
        ids: [B, T] of the kinds of rows that it shall learn from.
    """
    attention = [i for i, layer in enumerate(_layers(model)) if isinstance(layer.self_attn, GatedMLA)]
    size = code_width(model)
    room = quiet_directions(model, ids, size + size // 2)
    clear(model, room)
    level_mix(model, attention[0], ids)
    codes = shift_heads(model, attention[0], ids, room)
    out = output_map(model, ids, codes)
    for layer in attention:
        level_mix(model, layer, ids)
        induction_head(model, layer, ids, codes, out)


def code_width(model: Transformer) -> int:
    """K: as wide as heads and latents allow.

    Raises:
        TrainError: the model lacks a part that the grafted ones need.
    """
    config, layers = model.config, list(_layers(model))
    mla = config.mla
    if (
        not config.attn_res_block_size
        or config.kda.gate_lower_bound is None
        or not config.kda.full_rank_gate
        or mla.q_lora_rank is None
        or any(isinstance(layer.self_attn, GatedMLA) for layer in layers[: SHIFT_LAYER + 1])
    ):
        raise TrainError(
            "only a model with attention residuals, bounded KDA gates in its first layers and query latents "
            "can be grafted; train without --graft"
        )
    widths = (config.kda.head_dim, mla.qk_nope_head_dim, mla.v_head_dim, 2 * mla.qk_rope_head_dim)
    return min(*widths, mla.kv_lora_rank // 2, 2 * mla.q_lora_rank // 3)


def quiet_directions(model: Transformer, ids: Tensor, count: int) -> Tensor:
    """The `count` orthonormal directions [D, count] with the least energy in what all sub-layers read."""
    norms = [norm for norm, _ in _readers(model)]
    seen = [x.flatten(0, 1) / n.weight for n, x in zip(norms, normed(model, ids, norms), strict=True)]
    energy = torch.stack([x.T @ x / len(x) for x in seen]).sum(0)
    return torch.linalg.eigh(energy).eigenvectors[:, :count].contiguous()


def clear(model: Transformer, room: Tensor) -> None:
    """Let nothing write into the directions `room` [D, n] and nothing read them."""
    keep = torch.eye(room.shape[0]) - room @ room.T
    model.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight @ keep)
    for norm, weights in _readers(model):
        for weight in weights:
            weight.copy_((weight * norm.weight) @ keep / norm.weight)
    for layer in _layers(model):
        for weight in [layer.self_attn.o_proj.weight, *_feed_forward_writers(layer)]:
            weight.copy_(keep @ weight)
    for norm, proj in _mixes(model):
        scores = (norm.weight * proj.weight[0]) @ keep
        norm.weight.fill_(1)
        proj.weight[0] = scores


def level_mix(model: Transformer, layer: int, ids: Tensor) -> None:
    """Let an attention layer read embeddings and the first snapshot at levels of their own.

    Trained models give embeddings a fiftieth of the level of the rest, too little to tell tokens apart.
    """
    mixed = candidates(model, ids, layer)  # [C, B, T, D]
    size = mixed.square().mean(-1, keepdim=True).sqrt()
    levels = [*MIX_LEVELS, *[MIX_REST] * len(mixed)][: len(mixed)]
    wanted = torch.log(torch.tensor(levels) / size.mean((1, 2, 3)))
    wanted = (wanted - wanted.mean())[:, None, None, None].expand_as(size)
    own = model.model.layers[layer]
    assert isinstance(own, DecoderLayer)
    own.self_attention_res_norm.weight.fill_(1)
    own.self_attention_res_proj.weight.copy_(ridge((mixed / size).flatten(0, 2), wanted.reshape(-1, 1)))


def shift_heads(model: Transformer, reader: int, ids: Tensor, room: Tensor) -> Codes:
    """Let two heads write codes of the last two tokens into `room`; return the codes.

    Args:
        model: is changed.
        reader: the attention layer where the codes of tokens shall be told apart best.
        ids: [B, T].
        room: [D, K + K/2], free of everything.
    """
    layer = model.model.layers[SHIFT_LAYER]
    target = model.model.layers[reader]
    assert isinstance(layer, DecoderLayer)
    assert isinstance(target, DecoderLayer)
    kda = layer.self_attn
    assert isinstance(kda, KimiDeltaAttention)
    size, width, heads = code_width(model), kda.config.head_dim, kda.config.num_heads
    x, later = (y.flatten(0, 1) for y in normed(model, ids, [layer.input_layernorm, target.input_layernorm]))
    value = ridge(x, token_codes(later, ids.flatten(), size))
    value = value / (x @ value.T).square().mean().sqrt()
    level = candidates(model, ids, reader)[1].square().mean().sqrt()
    half = size // 2
    _shift_head(kda, heads - 1, value, 1)
    _shift_head(kda, heads - 2, value[:half], 2)
    (written,) = normed(model, ids, [kda.o_proj])
    last = written[..., (heads - 1) * width :][..., :size].clone()
    before = written[..., (heads - 2) * width :][..., :half].clone()
    for code, head, own in ((last, heads - 1, room[:, :size]), (before, heads - 2, room[:, size:])):
        unit = code.square().mean().sqrt()
        kda.o_proj.weight[:, head * width : head * width + own.shape[1]] = own * level / unit
        code.div_(unit)
    return Codes(last=last, before=before)


def _shift_head(kda: KimiDeltaAttention, head: int, value: Tensor, back: int) -> None:
    """Query and key see the token itself, the value the token `back` before; all is forgotten at once."""
    size = kda.config.head_dim
    own = slice(head * size, (head + 1) * size)
    kda.q_proj.weight[own] = kda.k_proj.weight[own]
    for taps, place in ((kda.q_conv1d, 1), (kda.k_conv1d, 1), (kda.v_conv1d, 1 + back)):
        taps.weight[own] = 0
        taps.weight[own, :, -place] = 1
    for projection in (kda.v_proj, kda.f_b_proj, kda.g_proj):
        projection.weight[own] = 0
    kda.v_proj.weight[head * size : head * size + len(value)] = value * VALUE_SCALE
    kda.dt_bias[own] = 6 / kda.A_log[head].exp()
    kda.b_proj.weight[head] = 0
    kda.o_proj.weight[:, own] = 0


def output_map(model: Transformer, ids: Tensor, codes: Codes) -> Tensor:
    """[D, K]: from a token's code to what makes the head say it, with a mean square of one."""
    head = model.lm_head.weight * model.model.norm.weight  # [V, D]
    tokens, code = ids[:, :-1].flatten(), codes.last[:, 1:].flatten(0, 1)
    count = torch.zeros(len(head)).index_add_(0, tokens, torch.ones(len(tokens)))
    mean = torch.zeros(len(head), code.shape[1]).index_add_(0, tokens, code)
    seen = count > 0
    mean = mean[seen] / count[seen, None]
    own = head - head.mean(0)
    gram = own.T @ own
    gram += 0.1 * gram.trace() / len(gram) * torch.eye(len(gram))
    out = ridge(mean, torch.linalg.solve(gram, own[seen].T).T, 1e-2)
    return out / (mean @ out.T).square().mean().sqrt()


def induction_head(model: Transformer, layer: int, ids: Tensor, codes: Codes, out: Tensor) -> None:
    """Start an attention layer anew, its first head as an induction head, the others at random."""
    own = model.model.layers[layer]
    assert isinstance(own, DecoderLayer)
    mla = own.self_attn
    assert isinstance(mla, GatedMLA)
    level = candidates(model, ids, None)[1:].square().mean().sqrt()
    (x,) = normed(model, ids, [own.input_layernorm])
    x = x[:, 8:-1].flatten(0, 1)
    last, before = (ridge(x, code) for code in codes.here())
    this, last_again = (ridge(x, code) for code in codes.next())
    draw = torch.Generator().manual_seed(layer)
    for name, parameter in mla.named_parameters():
        if "indexer" not in name:
            parameter.copy_(
                torch.ones_like(parameter)
                if parameter.dim() == 1
                else torch.randn(parameter.shape, generator=draw) * model.config.initializer_range
            )
    config, size = mla.config, len(last)
    nope, half = config.qk_nope_head_dim, len(before)
    mla.kv_a_proj_with_mqa.weight[: 2 * size] = torch.cat([last, this])
    mla.kv_a_proj_with_mqa.weight[config.kv_lora_rank : config.kv_lora_rank + half] = before
    mla.q_a_proj.weight[: size + half] = torch.cat([this, last_again])
    query, key = mla.q_b_proj.weight, mla.kv_b_proj.weight
    query[: config.qk_head_dim] = 0
    query[:size, :size] = MATCH_GAIN * torch.eye(size)
    query[nope : nope + half, size : size + half] = MATCH_GAIN * torch.eye(half)
    key[: nope + config.v_head_dim] = 0
    key[:size, :size] = torch.eye(size)
    key[nope : nope + size, size : 2 * size] = torch.eye(size)
    mla.g_proj.weight[: config.v_head_dim] = 0
    mla.o_proj.weight[:, :size] = out * OUTPUT_LEVEL * level


def _layers(model: Transformer) -> Iterator[DecoderLayer]:
    return model.model.decoder_layers()


def _readers(model: Transformer) -> list[tuple[RMSNorm, list[Tensor]]]:
    """Every norm with the weights that read its output."""
    found: list[tuple[RMSNorm, list[Tensor]]] = []
    for layer in _layers(model):
        mixer = layer.self_attn
        if isinstance(mixer, KimiDeltaAttention):
            gate = mixer.g_proj if mixer.config.full_rank_gate else mixer.g_a_proj
            own = [mixer.q_proj, mixer.k_proj, mixer.v_proj, mixer.f_a_proj, mixer.b_proj, gate]
        else:
            own = [mixer.q_a_proj, mixer.kv_a_proj_with_mqa]
            own += [mixer.g_proj] if mixer.config.output_gate else []
            if mixer.indexer is not None:
                own += [mixer.indexer.wk, mixer.indexer.weights_proj]
        found.append((layer.input_layernorm, [m.weight for m in own]))
        found.append((layer.post_attention_layernorm, _feed_forward_readers(layer)))
    found.append((model.model.norm, [model.lm_head.weight]))
    return found


def _feed_forward_readers(layer: DecoderLayer) -> list[Tensor]:
    if not layer.is_moe:
        return [layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]
    moe = layer.block_sparse_moe
    shared = moe.shared_experts
    read = [moe.gate, moe.routed_expert_down_proj, shared.gate_proj, shared.up_proj]
    return [module.weight for module in read]


def _feed_forward_writers(layer: DecoderLayer) -> list[Tensor]:
    if not layer.is_moe:
        return [layer.mlp.down_proj.weight]
    moe = layer.block_sparse_moe
    return [moe.routed_expert_up_proj.weight, moe.shared_experts.down_proj.weight]


def _mixes(model: Transformer) -> Iterator[tuple[RMSNorm, nn.Linear]]:
    """The residual mixes: a norm and a projection each."""
    for layer in _layers(model):
        yield layer.self_attention_res_norm, layer.self_attention_res_proj
        yield layer.mlp_res_norm, layer.mlp_res_proj
    yield model.model.output_attn_res_norm, model.model.output_attn_res_proj
