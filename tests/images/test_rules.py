"""The size rule against a plain reading of it, and the preprocessor_config.json of a checkpoint."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.images.errors import ImageError
from gossamer.images.rules import Background, ImageRules, fit, parse_rules, read_rules

SIDES = st.integers(1, 120_000)


@given(SIDES, SIDES)
@example(1, 1)
@example(100_000, 10)
@example(10, 100_000)
@example(7168, 7168)
def test_every_image_fits_the_limits_and_keeps_its_shape(width, height):
    rules = ImageRules()
    size = fit(rules, width, height)
    assert (size.width, size.height) == (width, height)
    assert 1 <= size.new_width <= min(width, 512 * 14)
    assert 1 <= size.new_height <= min(height, 512 * 14)
    assert size.columns % 2 == size.rows % 2 == 0
    assert 0 <= size.columns * 14 - size.new_width < 28
    assert 0 <= size.rows * 14 - size.new_height < 28
    assert size.num_tokens == size.columns * size.rows // 4
    # Where nothing has to be cut off to a whole pixel the shape is kept.
    if min(size.new_width, size.new_height) > 1:
        scale = size.new_width / width
        assert abs(size.new_height - height * scale) < 1 + height / width


@pytest.mark.parametrize(
    ("width", "height", "new", "tokens"),
    [
        (1, 1, (1, 1), 1),
        (28, 28, (28, 28), 1),
        (29, 28, (29, 28), 2),
        (1024, 768, (1024, 768), 37 * 28),
        # 100000 * (7168 / 100000) is a little below 7168 in floating point, and the rule cuts off.
        (100_000, 10, (7167, 1), 256),
        # floor(4000/14) * floor(3000/14) = 285 * 214 patches, within 65,536.
        (4000, 3000, (4000, 3000), 143 * 108),
    ],
)
def test_sizes_worked_out_by_hand(width, height, new, tokens):
    size = fit(ImageRules(), width, height)
    assert (size.new_width, size.new_height) == new
    assert size.num_tokens == tokens


def test_an_image_over_the_patch_limit_shrinks_by_the_root():
    size = fit(ImageRules(in_patch_limit=16), 140, 140)
    assert size.new_width == size.new_height == int(140 * math.sqrt(16 / 100))


@pytest.mark.parametrize(("width", "height"), [(0, 5), (5, 0), (-1, 5)])
def test_no_pixels_are_refused(width, height):
    with pytest.raises(ImageError, match="at least one pixel"):
        fit(ImageRules(), width, height)


PUBLISHED = {
    "patch_size": 14,
    "merge_kernel_size": [2, 2],
    "in_patch_limit": 65536,
    "patch_limit_on_one_side": 512,
    "fixed_output_tokens": None,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "transparent_bg_config": {"pattern": "chessboard", "chessboard_square_size": 16},
    "transparent_bg_fill_stage": "after_resize",
}


def test_a_checkpoint_without_the_file_follows_the_published_rules(tmp_path):
    assert read_rules(tmp_path) == ImageRules() == parse_rules(PUBLISHED)


def test_the_files_values_rule(tmp_path):
    media = {
        **PUBLISHED,
        "in_patch_limit": 64,
        "image_mean": [0.4, 0.5, 0.6],
        "transparent_bg_config": {"pattern": "white"},
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"media_proc_cfg": media}))
    rules = read_rules(tmp_path)
    assert rules.in_patch_limit == 64
    assert rules.mean == (0.4, 0.5, 0.6)
    assert rules.background == Background(pattern="white")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"patch_size": 0}, "patch_size"),
        ({"patch_size": True}, "patch_size"),
        ({"merge_kernel_size": [2, 4]}, "merge_kernel_size"),
        ({"fixed_output_tokens": 256}, "fixed_output_tokens"),
        ({"image_std": [1, 0, 1]}, "image_std"),
        ({"image_mean": 0.5}, "image_mean"),
        ({"transparent_bg_config": {"pattern": "plaid"}}, "plaid"),
        ({"transparent_bg_config": {"colour": "red"}}, "colour"),
        ({"transparent_bg_config": {"pattern": "chessboard", "chessboard_square_size": "x"}}, "wrong type"),
        ({"transparent_bg_fill_stage": "never"}, "transparent_bg_fill_stage"),
    ],
)
def test_rules_that_cannot_be_followed_are_named(change, names):
    with pytest.raises(ImageError, match=names):
        parse_rules({**PUBLISHED, **change})


@pytest.mark.parametrize("text", ["{", "[]", '{"media_proc_cfg": 3}', "\xff"])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "preprocessor_config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ImageError, match=r"preprocessor_config\.json"):
        read_rules(tmp_path)
