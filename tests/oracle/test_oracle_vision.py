"""The vision tower against nemo-automodel's K3 tower, and its positions against transformers' kimi_k25.

kimi_k25's norms, biases and interpolation differ from K3's, so only its two position functions are asked, the
stretching in K3's mode.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compare import difference

from gossamer.images.rules import ImageRules, fit
from gossamer.kernels import vision as plain
from gossamer.model import vision as ours
from model.small_vision import lively_vision, toy

pytestmark = pytest.mark.oracle
NEMO, TRANSFORMERS = "nemo-automodel 0.7.0 kimi_k3", "transformers 5.24.0 kimi_k25"
WORKER = ("vision", "vision_worker.py")
GRIDS = [(8, 8), (2, 2), (4, 6), (10, 2), (2, 14)]


def their_sizes(config):
    return {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "qkv_hidden_size": config.qkv_size,
        "patch_size": config.patch_size,
        "init_pos_emb_height": config.pos_emb_height,
        "init_pos_emb_width": config.pos_emb_width,
        "init_pos_emb_time": config.pos_emb_time,
        "pos_emb_type": "divided_fixed",
        "pos_emb_interpolation_mode": "bilinear",
        "norm_type": "rmsnorm",
        "mlp_type": "mlp2",
        "attn_bias": False,
        "linear_bias": False,
        "patch_embed_proj_bias": False,
        "merge_kernel_size": list(config.merge_size),
        "merge_type": "sd2_tpool",
        "projector_ln_eps": config.projector_eps,
        "text_hidden_size": config.text_hidden_size,
    }


def case(ask, config, seed=0):
    """(our module, patches of each image, probe, their results)."""
    module = lively_vision(config, seed)
    generator = torch.Generator().manual_seed(seed + 7)
    wide = 3 * config.patch_size**2
    patches = [torch.randn(rows * columns, wide, generator=generator) for rows, columns in GRIDS]
    tokens = sum(rows * columns // 4 for rows, columns in GRIDS)
    probe = torch.randn(tokens, config.text_hidden_size, generator=generator)
    arrays = {f"w.{name}": t.detach().numpy() for name, t in module.state_dict().items()}
    arrays |= {"patches": torch.cat(patches).numpy(), "probe": probe.numpy()}
    theirs = ask(*WORKER, "images", arrays, sizes=their_sizes(config), grids=GRIDS)
    return module, patches, probe, theirs


def test_tower_and_projector(ask, held):
    config = toy()
    module, patches, probe, theirs = case(ask, config)
    rows = torch.cat([module(some[None], *grid)[0] for some, grid in zip(patches, GRIDS, strict=True)])
    held(rows, theirs["rows"], "vision tower and projector, torch", "rows", NEMO, "layer")
    (rows * probe).sum().backward()
    gradients = {f"grad.{name}": p.grad for name, p in module.named_parameters()}
    assert set(gradients) == set(theirs) - {"rows"}
    for name, gradient in gradients.items():
        held(
            gradient, theirs[name], "vision tower and projector, torch", "gradients", NEMO, "layer_gradients"
        )
    weights = {name: t.detach().numpy() for name, t in module.state_dict().items()}
    network = plain.VisionNetwork(config, weights.items())
    got = np.concatenate(
        [network.run(some.numpy(), *grid) for some, grid in zip(patches, GRIDS, strict=True)]
    )
    held(got, theirs["rows"], "vision tower and projector, numpy", "rows", NEMO, "layer")


@pytest.mark.parametrize("kind", ["rows and columns swapped", "norm eps", "approximate projector GELU"])
def test_a_broken_tower_is_seen(kind, ask, monkeypatch):
    module, patches, _, theirs = case(ask, toy())
    if kind == "rows and columns swapped":
        right = ours.rotation
        monkeypatch.setattr(
            ours, "rotation", lambda r, c, k: right(r, c, k).unflatten(1, (-1, 2)).flip(-1).flatten(1)
        )
    elif kind == "norm eps":
        module.vision_tower.encoder.final_layernorm.eps = 1e-2
    else:
        module.mm_projector.proj[1].approximate = "tanh"
    with torch.no_grad():
        rows = torch.cat([module(some[None], *grid)[0] for some, grid in zip(patches, GRIDS, strict=True)])
    assert difference(rows, theirs["rows"]).rel_rms > 3e-5


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 11), (20, 6)])
def test_positions(rows, columns, ask, held):
    table = np.random.default_rng(3).standard_normal((8, 8, 6), np.float32)
    theirs = ask(*WORKER, "positions", {"table": table}, rows=rows, columns=columns)["table"]
    module = ours.PositionTable(toy(hidden_size=6))
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(table))
        held(module(rows, columns), theirs, "stretched positions, torch", "table", TRANSFORMERS, "layer")
    held(
        plain.stretch(table, rows, columns),
        theirs,
        "stretched positions, numpy",
        "table",
        TRANSFORMERS,
        "layer",
    )


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (9, 3)])
def test_rotation(rows, columns, ask, held):
    x = np.random.default_rng(4).standard_normal((rows * columns, 16), np.float32)
    theirs = ask(*WORKER, "rotation", {"x": x}, rows=rows, columns=columns)["turned"]
    angles = ours.rotation(rows, columns, 16)
    held(
        ours.rotate(torch.from_numpy(x), angles),
        theirs,
        "2-D rotation, torch",
        "output",
        TRANSFORMERS,
        "layer",
    )
    turned = plain.turn(x, *plain.rotation(rows, columns, 16))
    held(turned, theirs, "2-D rotation, numpy", "output", TRANSFORMERS, "layer")


@pytest.mark.parametrize("limit", [65_536, 16_384, 64])
def test_sizes(limit, ask):
    """Whole numbers: equal, or wrong."""
    rng = np.random.default_rng(limit)
    sides = np.exp(rng.uniform(0, np.log(60_000), (3000, 2))).astype(np.int64)
    edges = [
        (14 * a + b, 14 * c + d)
        for a in (1, 2, 512)
        for b in (-1, 0, 1)
        for c in (1, 8, 512)
        for d in (-1, 0, 1)
    ]
    cases = np.concatenate([sides, np.array(edges), [[1, 1], [100_000, 1], [1, 100_000]]])
    theirs = ask(*WORKER, "sizes", {"sizes": cases}, in_patch_limit=limit)["sizes"]
    rules = ImageRules(in_patch_limit=limit)
    found = [fit(rules, *case) for case in cases.tolist()]
    ours = [(f.new_width, f.new_height, 14 * f.columns, 14 * f.rows) for f in found]
    np.testing.assert_array_equal(np.array(ours), theirs)
