"""bfloat16 as uint16 bit patterns, for code without torch.

Shapes are kept; both functions work on arrays of any rank.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def bf16_to_f32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 values of bfloat16 bit patterns; exact."""
    if bits.dtype != np.uint16:
        raise TypeError(f"bfloat16 bit patterns are uint16, got {bits.dtype}")
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16 bit patterns, ties to even; NaN stays NaN, overflow becomes Inf."""
    if values.dtype != np.float32:
        raise TypeError(f"expected float32, got {values.dtype}")
    bits = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        # Rounding could carry a NaN to Inf or to the other sign; keep its sign and set the quiet bit.
        rounded = np.where(nan, (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40), rounded)
    return rounded.reshape(values.shape)
