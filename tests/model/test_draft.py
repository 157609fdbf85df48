"""The draft head: whole or token by token, after a round trip, refused when it does not fit."""

import json
from dataclasses import replace

import pytest
import torch

from gossamer.config import presets
from gossamer.model import draft as drafting
from gossamer.model.draft import DraftHead
from gossamer.model.errors import ModelError
from gossamer.model.transformer import Transformer
from gossamer.train.draft import new_head


@pytest.fixture
def trunk():
    return Transformer(presets.load("debug"), seed=3).eval()


@torch.inference_mode()
def test_token_by_token_equals_one_pass(trunk):
    head = new_head(trunk, 1).eval()
    draw = torch.Generator().manual_seed(0)
    embedded, hidden = (torch.randn(2, 21, 64, generator=draw) for _ in range(2))
    whole, cache = head(embedded, hidden), head.new_cache(2)
    steps = [head(embedded[:, t : t + 1], hidden[:, t : t + 1], cache) for t in range(21)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_last_hidden_is_what_the_output_head_reads(trunk):
    ids = torch.randint(0, 200, (2, 13), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(trunk.lm_head(drafting.last_hidden(trunk, ids)), trunk(ids))
    assert not trunk.model.norm._forward_hooks


@torch.inference_mode()
def test_round_trip_loses_no_more_than_bfloat16(trunk, tmp_path):
    head = new_head(trunk, 2).eval()
    num_bytes = drafting.save(head, tmp_path)
    back = drafting.load(tmp_path, trunk.config)
    assert back is not None
    assert num_bytes == sum(p.stat().st_size for p in (tmp_path / "draft").glob("*.safetensors"))
    for name, tensor in head.state_dict().items():
        exact = name.endswith(drafting.FLOAT32_NAMES)
        stored = tensor if exact else tensor.bfloat16().float()
        assert torch.equal(back.state_dict()[name], stored), name


def test_no_head_an_unknown_kind_and_another_width(trunk, tmp_path):
    assert drafting.load(tmp_path, trunk.config) is None
    drafting.save(new_head(trunk, 2), tmp_path)
    with pytest.raises(ModelError, match=r"shape .* the trunk needs"):
        drafting.load(tmp_path, replace(trunk.config, hidden_size=128))
    path = tmp_path / "draft" / drafting.CONFIG_FILE
    path.write_text(json.dumps({"kind": "other"}))
    with pytest.raises(ModelError, match="kind 'other'"):
        drafting.load(tmp_path, trunk.config)


def test_nanos_head_is_at_most_fifteen_percent_of_it():
    config = presets.load("nano")
    trunk = sum(p.numel() for p in Transformer(config, seed=None).parameters())
    head = sum(p.numel() for p in DraftHead(config, 512).parameters())
    assert head <= 0.15 * trunk
