"""Preprocessing: each step against a pixel-by-pixel reading of its rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gossamer.images.patches import composite, cut, draw
from gossamer.images.rules import Background, ImageRules

SMALL = ImageRules(patch_size=4, in_patch_limit=40, patch_limit_on_one_side=16)


def noise(width, height, channels=3, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from((3, 4)))
def test_patches_hold_the_pixels_in_order(width, height, channels):
    image = noise(width, height, channels)
    patches = cut(image, SMALL)
    size, side = patches.fit, SMALL.patch_size
    assert patches.values.shape == (size.rows * size.columns, 3 * side * side)
    small = image.resize((size.new_width, size.new_height), Image.Resampling.BICUBIC)
    pixels = np.asarray(small)
    if channels == 4:
        pixels = composite(pixels, SMALL.background)
    for row in range(size.rows * side):
        for column in range(size.columns * side):
            inside = row < size.new_height and column < size.new_width
            want = (pixels[row, column] if inside else np.zeros(3)) / 255 * 2 - 1
            patch = patches.values[row // side * size.columns + column // side].reshape(3, side, side)
            np.testing.assert_allclose(patch[:, row % side, column % side], want, atol=1e-6)


def test_an_image_of_the_right_size_is_not_resampled():
    image = noise(16, 8)
    values = cut(image, SMALL).values.reshape(2, 4, 3, 4, 4).transpose(0, 3, 1, 4, 2).reshape(8, 16, 3)
    np.testing.assert_allclose((values + 1) / 2 * 255, np.asarray(image), atol=1e-4)


def test_the_chessboard_starts_light_and_has_squares_of_sixteen():
    board = draw(Background(), 40, 40)
    for y in range(40):
        for x in range(40):
            assert board[y, x] == (200 if (y // 16 + x // 16) % 2 else 255)
    other = draw(Background(light_on_top_left=False, square_size=3, white=9, gray=4), 5, 7)
    assert other[0, 0] == 4
    assert other[0, 3] == 9


@pytest.mark.parametrize(("pattern", "level"), [("white", 255), ("black", 0), ("gray", 128)])
def test_plain_backgrounds(pattern, level):
    clear = np.zeros((2, 2, 4), np.uint8)
    assert (composite(clear, Background(pattern=pattern)) == level).all()


def test_half_transparent_pixels_are_mixed_and_cut_off():
    pixel = np.array([[[10, 20, 31, 128]]], np.uint8)
    alpha = np.float32(128) / np.float32(255)
    want = [int(alpha * v + (1 - alpha) * 255) for v in (10, 20, 31)]
    assert composite(pixel, Background())[0, 0].tolist() == want


def test_without_a_background_alpha_is_dropped():
    pixels = np.asarray(noise(3, 2, 4))
    np.testing.assert_array_equal(composite(pixels, None), pixels[..., :3])


def test_the_stage_of_the_background_matters():
    """A clear image: laid under before the resize the board shrinks with it, after it does not."""
    image = Image.new("RGBA", (320, 320))
    limits = {"in_patch_limit": 16, "background": Background(square_size=40)}
    after = cut(image, ImageRules(**limits))
    before = cut(image, ImageRules(**limits, fill_stage="before_resize"))
    assert after.fit == before.fit
    assert len(np.unique(after.values.round(4))) <= 3
    assert not np.array_equal(after.values, before.values)
    whole = composite(np.asarray(image), limits["background"])
    opaque = cut(Image.fromarray(whole), ImageRules(**limits))
    np.testing.assert_array_equal(before.values, opaque.values)
