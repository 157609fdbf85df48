"""Untrusted bytes to a Pillow image: every limit is checked before pixels are decoded.

The pixels are those of the file: no orientation tag is followed and no colour profile applied, as in the
published preprocessing.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from gossamer.images.errors import ImageError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
MAX_PIXELS = 50_000_000
"""A 48-megapixel photograph, whatever its sides; about 200 MB while it is decoded."""
# What Pillow's readers raise on damaged data, as far as fuzzing them has shown.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    Warning,
    struct.error,
    zlib.error,
)
_T = TypeVar("_T")


def probe(data: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header alone.

    Raises:
        ImageError: not an image of a known format, too many pixels, animated, or damaged.
    """
    return _guarded(lambda: _open(data).size)


def decode(data: bytes) -> Image:
    """The image as RGB, or as RGBA where it has any transparency.

    Raises:
        ImageError: see `probe`; or the data ends early or is damaged.
    """
    return _guarded(lambda: _converted(_open(data)))


def _guarded(work: Callable[[], _T]) -> _T:
    try:
        return work()
    except ImageError:
        raise
    except MemoryError:
        raise ImageError("needs more memory than there is; send a smaller image") from None
    except _DAMAGE as error:
        raise ImageError(f"is damaged or cut short ({str(error)[:120] or type(error).__name__})") from None


def _open(data: bytes) -> Image:
    from PIL import Image as pillow

    try:
        image = pillow.open(io.BytesIO(data), formats=FORMATS)
    except pillow.UnidentifiedImageError:
        raise ImageError(f"is no image of a known format; send {', '.join(FORMATS)}") from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
        raise ImageError(f"has more than {MAX_PIXELS:,} pixels; send a smaller image") from None
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"has no pixels ({width} x {height})")
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"has {width} x {height} pixels, more than {MAX_PIXELS:,} in all; send a smaller image"
        )
    # A JPEG of several pictures (MPO) holds a photograph and its thumbnails, no animation.
    if image.format in ("PNG", "GIF", "WEBP") and getattr(image, "is_animated", False):
        raise ImageError("is animated; send the frame that is meant as an image of its own")
    return image


def _converted(image: Image) -> Image:
    image.load()
    if "A" in image.getbands() or "transparency" in image.info:
        return image.convert("RGBA")
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    return image.convert("RGB")


def _from_16_bits(image: Image) -> Image:
    """Gray levels of 16 bits to RGB by their high byte; Pillow's own conversion would cut them off at 255."""
    import numpy as np
    from PIL import Image as pillow

    levels = np.asarray(image).astype(np.uint32) >> 8
    return pillow.fromarray(np.minimum(levels, 255).astype(np.uint8)).convert("RGB")
