"""Two 4-bit codes per byte, as published checkpoints store them: the even column is the low nibble.

Shapes: codes [..., n] uint8 below 16; packed [..., n/2] uint8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gossamer.mx.formats import MXError

U8 = npt.NDArray[np.uint8]


def pack4(codes: npt.ArrayLike) -> U8:
    """Byte j holds column 2j in its low and 2j + 1 in its high nibble.

    Raises:
        MXError: for codes that are not uint8, of 16 or more, or of an odd last dimension.
    """
    c = np.asarray(codes)
    if c.dtype != np.uint8:
        raise MXError(f"4-bit codes must be uint8, got {c.dtype}")
    if c.ndim == 0 or c.shape[-1] % 2:
        raise MXError(f"packing needs an even last dimension, got shape {c.shape}")
    if c.size and int(c.max()) > 15:
        raise MXError(f"code {int(c.max())} does not fit in 4 bits")
    return c[..., 0::2] | (c[..., 1::2] << np.uint8(4))


def unpack4(packed: npt.ArrayLike) -> U8:
    """The codes [..., n] of packed [..., n/2].

    Raises:
        MXError: for bytes that are not uint8.
    """
    p = np.asarray(packed)
    if p.dtype != np.uint8 or p.ndim == 0:
        raise MXError(f"packed codes must be a uint8 array, got {p.dtype} of shape {p.shape}")
    codes = np.empty((*p.shape[:-1], 2 * p.shape[-1]), np.uint8)
    np.bitwise_and(p, np.uint8(15), out=codes[..., 0::2])
    np.right_shift(p, np.uint8(4), out=codes[..., 1::2])
    return codes
