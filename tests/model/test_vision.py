"""The tower in torch: names, shapes, and that each mechanism does what it is for."""

from dataclasses import replace

import pytest
import torch

from gossamer.config import count, presets
from gossamer.config.count import VISION_COMPONENTS
from gossamer.model.errors import ModelError
from gossamer.model.vision import Vision, rotate, rotation
from model.small_vision import lively_vision, toy
from numerics import assert_close


def image(rows, columns, config, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, rows * columns, 3 * config.patch_size**2, generator=generator)


def test_names_and_shapes_are_the_published_ones():
    config = presets.load("k3.1-pro")
    with torch.device("meta"):
        own = {name: tuple(t.shape) for name, t in Vision(config.vision, seed=None).state_dict().items()}
    published = {s.name: s.shape for s in count.tensors(config) if s.component in VISION_COMPONENTS}
    assert own == published
    tower = sum(torch.Size(s).numel() for n, s in own.items() if n.startswith("vision_tower."))
    assert tower == 401_214_464
    assert sum(torch.Size(s).numel() for s in own.values()) - tower == 46_144_512


def test_images_of_a_batch_do_not_meet():
    config = toy()
    vision = lively_vision(config)
    patches = image(4, 6, config, batch=3)
    with torch.no_grad():
        together = vision(patches, 4, 6)
        for i in range(3):
            assert_close(vision(patches[i : i + 1], 4, 6)[0], together[i], ("vision", "float32", "numpy"))


def test_every_patch_reaches_every_token():
    config = toy()
    vision = lively_vision(config)
    patches = image(4, 4, config)
    with torch.no_grad():
        before = vision(patches, 4, 4)
        patches[0, 5] += 0.5
        moved = (vision(patches, 4, 4) - before).abs().amax(-1)[0]
    assert (moved > 1e-6).all()


def test_tokens_are_two_by_two_patches_in_reading_order():
    """Without blocks a token sees its own four patches only."""
    config = toy(num_layers=0)
    vision = lively_vision(config)
    patches = image(4, 6, config)
    with torch.no_grad():
        before = vision(patches, 4, 6)
        for patch in range(24):
            changed = patches.clone()
            changed[0, patch] += 1
            moved = (vision(changed, 4, 6) - before).abs().amax(-1)[0].nonzero().flatten()
            assert moved.tolist() == [patch // 6 // 2 * 3 + patch % 6 // 2]


def test_rotation_keeps_lengths_and_sees_differences_only():
    angles = rotation(5, 7, 16)
    x, y = torch.randn(2, 16)
    assert torch.allclose(rotate(x.expand(35, 16), angles).norm(dim=-1), x.norm().expand(35), atol=1e-5)
    turned_x, turned_y = rotate(x.expand(35, 16), angles), rotate(y.expand(35, 16), angles)
    scores = (turned_x @ turned_y.T).view(5, 7, 5, 7)
    assert torch.allclose(scores[1, 2, 3, 4], scores[0, 0, 2, 2], atol=1e-4)
    assert torch.allclose(scores[4, 1, 2, 5], scores[3, 0, 1, 4], atol=1e-4)
    assert not torch.allclose(scores[0, 0, 0, 2], scores[0, 0, 2, 0], atol=1e-3)


def test_even_pairs_turn_with_the_column():
    angles = rotation(3, 4, 8).view(3, 4, 4)
    assert angles[2, 0].tolist() == pytest.approx([0, 2, 0, 0.02])
    assert angles[0, 3].tolist() == pytest.approx([3, 0, 0.03, 0])


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "names"),
    [((1, 4, 48), 2, 3, "patches must be"), ((1, 9, 48), 3, 3, "do not merge"), ((4, 48), 2, 2, "patches")],
)
def test_shapes_that_do_not_fit_are_named(shape, rows, columns, names):
    with pytest.raises(ModelError, match=names):
        lively_vision(toy())(torch.zeros(shape), rows, columns)


def test_sizes_that_cannot_be_built_are_named():
    for change, names in (
        ({"qkv_size": 36}, "qkv_hidden_size"),
        ({"projector_hidden_size": 8}, "mm_hidden_size"),
    ):
        with pytest.raises(ModelError, match=names):
            Vision(replace(toy(), **change))
