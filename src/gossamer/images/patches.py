"""An image to the tower's input: resized, laid on its background, padded, normalised, cut into patches.

Shape legend: P patches, row by row; C = 3 channels; K pixels of a patch's side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gossamer.images.decode import decode
from gossamer.images.rules import Background, Fit, ImageRules, fit

if TYPE_CHECKING:
    from PIL.Image import Image

_LEVELS = {"white": 255, "black": 0, "gray": 128}


@dataclass(frozen=True, kw_only=True)
class Patches:
    """One image for the tower.

    Attributes:
        values: [P, C * K * K] float32, channel by channel.
        fit: Its sizes; P = rows * columns.
    """

    values: NDArray[np.float32]
    fit: Fit


def prepare(data: bytes, rules: ImageRules) -> Patches:
    """Encoded bytes to patches.

    Raises:
        ImageError: see `gossamer.images.decode.decode`.
    """
    return cut(decode(data), rules)


def cut(image: Image, rules: ImageRules) -> Patches:
    """A decoded image, RGB or RGBA, to patches."""
    size = fit(rules, image.width, image.height)
    pixels = _resized(image, size, rules)
    patch = rules.patch_size
    padded = np.zeros((size.rows * patch, size.columns * patch, 3), np.uint8)
    padded[: size.new_height, : size.new_width] = pixels
    mean, std = np.array(rules.mean, np.float32), np.array(rules.std, np.float32)
    # A level becomes one of 256 numbers: looked up, since images are far larger.
    levels = (np.arange(256, dtype=np.float32)[:, None] / np.float32(255) - mean) / std
    values = np.empty((size.rows, size.columns, 3, patch, patch), np.float32)
    grid = padded.reshape(size.rows, patch, size.columns, patch, 3)
    for channel in range(3):
        values[:, :, channel] = levels[:, channel][grid[..., channel].transpose(0, 2, 1, 3)]
    return Patches(values=values.reshape(size.rows * size.columns, -1), fit=size)


def _resized(image: Image, size: Fit, rules: ImageRules) -> NDArray[np.uint8]:
    """[new_height, new_width, 3]; alpha is kept through the resize where the rules say so."""
    from PIL import Image as pillow

    if image.mode == "RGBA" and rules.fill_stage == "before_resize":
        image = pillow.fromarray(composite(np.asarray(image), rules.background))
    resized = image.resize((size.new_width, size.new_height), pillow.Resampling.BICUBIC)
    pixels = np.asarray(resized)
    return composite(pixels, rules.background) if resized.mode == "RGBA" else pixels


def composite(pixels: NDArray[np.uint8], background: Background | None) -> NDArray[np.uint8]:
    """RGBA [H, W, 4] on a background, fractions cut off; without one the alpha is dropped."""
    if background is None:
        return np.ascontiguousarray(pixels[..., :3])
    alpha = pixels[..., 3:].astype(np.float32) / np.float32(255)
    behind = draw(background, *pixels.shape[:2])[..., None].astype(np.float32)
    return (alpha * pixels[..., :3] + (1 - alpha) * behind).astype(np.uint8)


def draw(background: Background, height: int, width: int) -> NDArray[np.uint8]:
    """The background's levels [height, width]."""
    if background.pattern != "chessboard":
        return np.full((height, width), _LEVELS[background.pattern], np.uint8)
    row = np.arange(height)[:, None] // background.square_size
    column = np.arange(width)[None] // background.square_size
    dark = (row + column) % 2 == (1 if background.light_on_top_left else 0)
    return np.where(dark, background.gray, background.white).astype(np.uint8)
