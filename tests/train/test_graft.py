"""Grafted parts copy from the first step on, over any distance, and leave the rest of the model alone."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from gossamer.model.gated_dsa import GatedMLA
from gossamer.model.transformer import Transformer
from gossamer.train import fitting
from gossamer.train.errors import TrainError
from gossamer.train.graft import SHIFT_LAYER, clear, code_width, graft, quiet_directions

TOKENS = 40


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, TOKENS, (8, 256), generator=torch.Generator().manual_seed(4))


@pytest.fixture
def model(tiny_config) -> Transformer:
    return Transformer(tiny_config, seed=1)


def said_again(gap: int) -> tuple[torch.Tensor, slice]:
    """Twenty tokens, `gap` others, the twenty again; and where their predictions stand."""
    draw = torch.Generator().manual_seed(gap)
    span = torch.randperm(TOKENS, generator=draw)[:20]
    between = torch.randint(0, TOKENS, (gap,), generator=draw)
    return torch.cat([span, between, span])[None], slice(20 + gap + 1, 39 + gap)


@torch.no_grad()
def rank_of_copies(model: Transformer, gap: int) -> float:
    """Mean place of the right token among all, 0 the best."""
    ids, asked = said_again(gap)
    logits = model(ids, attention_mode="dense")[0, asked, :TOKENS]
    right = ids[0, asked.start + 1 : asked.stop + 1]
    return float((logits > logits.gather(1, right[:, None])).sum(1).float().mean())


def test_what_was_said_is_said_again_over_any_distance(model, ids):
    gaps = (1, 40, 120)
    before = [rank_of_copies(model, gap) for gap in gaps]
    graft(model, ids)
    after = [rank_of_copies(model, gap) for gap in gaps]
    assert min(before) > 10
    assert max(after) < min(before) / 2, (before, after)


def test_shift_heads_write_the_same_wherever_a_token_stood(model, ids):
    graft(model, ids)
    layer = model.model.layers[SHIFT_LAYER].self_attn
    rows = torch.randint(0, TOKENS, (2, 40), generator=torch.Generator().manual_seed(8))
    rows[:, 20] = 7
    (o,) = fitting.normed(model, rows, [layer.o_proj])
    own = o[..., layer.config.head_dim :][..., : code_width(model)]
    alike = F.cosine_similarity(own[0], own[1], dim=-1)
    assert alike[21] > 0.9
    assert alike.mean() < 0.5


def test_cleared_directions_are_neither_written_nor_read(model, ids):
    room = quiet_directions(model, ids, 8)
    assert torch.allclose(room.T @ room, torch.eye(8), atol=1e-5)
    with torch.no_grad():
        clear(model, room)
        own = fitting.candidates(model, ids[:1], None)
        assert (own @ room).abs().max() < 1e-5 * own.abs().max()
        plain = model(ids[:1])
        model.model.embed_tokens.weight.add_(
            torch.randn(len(model.model.embed_tokens.weight), 8) @ room.T * 1e-3
        )
        # Only the size of the stream can have changed.
        assert torch.allclose(model(ids[:1]), plain, atol=2e-2 * float(plain.abs().max()))


def test_indexers_stay_as_they_are(model, ids):
    own = [m for m in model.modules() if isinstance(m, GatedMLA)]
    names = [n for n, _ in own[0].named_parameters() if "indexer.wq_b" in n]
    before = own[0].get_parameter(names[0]).clone()
    graft(model, ids)
    assert torch.equal(before, own[0].get_parameter(names[0]))


def test_a_model_without_residual_mixes_is_refused(tiny_config, ids):
    plain = Transformer(replace(tiny_config, attn_res_block_size=0), seed=1)
    with pytest.raises(TrainError, match="--graft"):
        graft(plain, ids)


def test_ridge_finds_a_linear_map():
    draw = torch.Generator().manual_seed(2)
    x, w = torch.randn(500, 12, generator=draw), torch.randn(3, 12, generator=draw)
    assert torch.allclose(fitting.ridge(x, x @ w.T, 1e-9), w, atol=1e-4)


def test_token_codes_tell_tokens_apart_and_are_equal_for_one():
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 30, (2000,), generator=draw)
    kinds = torch.randn(30, 16, generator=draw)
    x = kinds[ids] + 0.1 * torch.randn(2000, 16, generator=draw)
    codes = fitting.token_codes(x, ids, 8)
    first = {int(i): code for i, code in zip(ids, codes, strict=True)}
    assert all(torch.equal(first[int(i)], code) for i, code in zip(ids, codes, strict=True))
    distances = torch.cdist(torch.stack(list(first.values())), torch.stack(list(first.values())))
    assert distances[~torch.eye(len(first), dtype=torch.bool)].min() > 0.5
