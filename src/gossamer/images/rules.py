"""Preprocessing rules of a checkpoint, and the size an image gets by them.  Pure numbers.

An image is never enlarged.  It shrinks until it has at most ``in_patch_limit`` patches and neither side more
than ``patch_limit_on_one_side`` of them, and is then padded at the right and the bottom to whole tokens.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from gossamer.images.errors import ImageError

FILE_NAME = "preprocessor_config.json"
Pattern = Literal["chessboard", "white", "black", "gray"]
FillStage = Literal["after_resize", "before_resize"]


@dataclass(frozen=True, kw_only=True)
class Background:
    """What shows through transparent pixels.

    Attributes:
        pattern: A chessboard, or one level: 255, 0 or 128.
        square_size: Pixels of a square of the chessboard.
        white: Level of its light squares.
        gray: Level of its dark squares.
        light_on_top_left: Whether the first square is a light one.
    """

    pattern: Pattern = "chessboard"
    square_size: int = 16
    white: int = 255
    gray: int = 200
    light_on_top_left: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if self.pattern not in get_args(Pattern):
            raise ImageError(
                f"background pattern must be one of {', '.join(get_args(Pattern))}, got {self.pattern!r}"
            )
        if self.square_size < 1:
            raise ImageError(f"chessboard_square_size must be at least 1, got {self.square_size}")
        for name in ("white", "gray"):
            if not 0 <= getattr(self, name) <= 255:
                raise ImageError(f"chessboard_{name}_value must be from 0 to 255, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class ImageRules:
    """How pixels become patches; the defaults are those of the published K3 checkpoint.

    Attributes:
        patch_size: Pixels of a patch's side.
        merge_size: Patches of a token's side.
        in_patch_limit: Most patches of an image.
        patch_limit_on_one_side: Most patches of a side.
        mean: Of each channel, taken from pixels in 0..1.
        std: Of each channel, what is left is divided by.
        background: Behind transparent pixels; None drops the alpha channel.
        fill_stage: Whether the background is laid under the resized image or the original.
    """

    patch_size: int = 14
    merge_size: int = 2
    in_patch_limit: int = 65_536
    patch_limit_on_one_side: int = 512
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    background: Background | None = Background()
    fill_stage: FillStage = "after_resize"

    def __post_init__(self) -> None:
        """Refuse numbers that make no image."""
        for name in ("patch_size", "merge_size", "in_patch_limit", "patch_limit_on_one_side"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ImageError(f"{name} must be an integer of at least 1, got {value!r}")
        if self.fill_stage not in get_args(FillStage):
            raise ImageError(
                f"transparent_bg_fill_stage must be one of {', '.join(get_args(FillStage))}, "
                f"got {self.fill_stage!r}"
            )
        for name in ("mean", "std"):
            value = getattr(self, name)
            if len(value) != 3 or not all(isinstance(v, int | float) and math.isfinite(v) for v in value):
                raise ImageError(f"image_{name} must be three numbers, got {value!r}")
        if 0 in self.std:
            raise ImageError(f"image_std must not hold 0, got {self.std}")

    @property
    def token_size(self) -> int:
        """Pixels of a token's side."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True, kw_only=True)
class Fit:
    """An image's way to patches.

    Attributes:
        width: Of the original, in pixels; the prompt names it.
        height: Of the original.
        new_width: After resizing.
        new_height: After resizing.
        columns: Patches of a row, padding included.
        rows: Patches of a column.
        num_tokens: Positions it fills in the prompt.
    """

    width: int
    height: int
    new_width: int
    new_height: int
    columns: int
    rows: int
    num_tokens: int


def fit(rules: ImageRules, width: int, height: int) -> Fit:
    """The sizes of an image of ``width`` x ``height`` pixels.

    Raises:
        ImageError: a side is below one pixel.
    """
    if width < 1 or height < 1:
        raise ImageError(f"an image needs at least one pixel, got {width} x {height}")
    patch, most = rules.patch_size, rules.patch_limit_on_one_side * rules.patch_size
    patches = max(1.0, width // patch) * max(1.0, height // patch)
    scale = min(1.0, math.sqrt(rules.in_patch_limit / patches), most / width, most / height)
    new_width, new_height = (min(max(1, int(side * scale)), most) for side in (width, height))
    columns, rows = (-(-side // rules.token_size) * rules.merge_size for side in (new_width, new_height))
    return Fit(
        width=width,
        height=height,
        new_width=new_width,
        new_height=new_height,
        columns=columns,
        rows=rows,
        num_tokens=columns * rows // rules.merge_size**2,
    )


def read_rules(folder: Path) -> ImageRules:
    """The rules in a checkpoint folder's preprocessor_config.json; the published ones where it has none.

    Raises:
        ImageError: the file is damaged or holds what cannot be followed.
    """
    file = folder / FILE_NAME
    try:
        tree = json.loads(file.read_bytes())
    except FileNotFoundError:
        return ImageRules()
    except (OSError, ValueError, RecursionError) as error:
        raise ImageError(f"{file}: cannot be read as JSON ({error})") from None
    media = tree.get("media_proc_cfg", {}) if isinstance(tree, dict) else None
    if not isinstance(media, dict):
        raise ImageError(f"{file}: expected an object with media_proc_cfg")
    try:
        return parse_rules(media)
    except ImageError as error:
        raise ImageError(f"{file}: media_proc_cfg: {error}") from None


def parse_rules(media: dict[str, Any]) -> ImageRules:
    """Rules from a ``media_proc_cfg`` object; keys that concern videos are left alone.

    Raises:
        ImageError: a value that cannot be followed.
    """
    if media.get("fixed_output_tokens") is not None:
        raise ImageError(f"fixed_output_tokens {media['fixed_output_tokens']!r} is not supported; use null")
    known = {
        name: media[name]
        for name in ("patch_size", "in_patch_limit", "patch_limit_on_one_side")
        if name in media
    }
    merge = media.get("merge_kernel_size", 2)
    sides = set(merge) if isinstance(merge, list) else {merge}
    if len(sides) != 1:
        raise ImageError(f"merge_kernel_size must be square, got {merge!r}")
    for name in ("mean", "std"):
        value = media.get(f"image_{name}", (0.5, 0.5, 0.5))
        if not isinstance(value, list | tuple):
            raise ImageError(f"image_{name} must be three numbers, got {value!r}")
        known[name] = tuple(value)
    # Without the key the reference drops alpha; the published file has it.
    return ImageRules(
        **known,
        merge_size=sides.pop(),
        background=_background(media.get("transparent_bg_config")),
        fill_stage=media.get("transparent_bg_fill_stage", "before_resize"),
    )


def _background(tree: Any) -> Background | None:
    if tree is None:
        return None
    if not isinstance(tree, dict):
        raise ImageError(f"transparent_bg_config must be an object, got {tree!r:.80}")
    names = {
        "pattern": "pattern",
        "chessboard_square_size": "square_size",
        "chessboard_white_value": "white",
        "chessboard_gray_value": "gray",
        "chessboard_square_on_top_left": "light_on_top_left",
    }
    assert set(names.values()) == {field.name for field in fields(Background)}
    unknown = sorted(set(tree) - set(names))
    if unknown:
        raise ImageError(f"transparent_bg_config has keys that are not understood: {', '.join(unknown)}")
    values: dict[str, Any] = {"pattern": "black"} | {names[key]: value for key, value in tree.items()}
    try:
        return Background(**values)
    except TypeError:
        raise ImageError(f"transparent_bg_config holds a value of a wrong type: {tree!r:.200}") from None
