"""Why block scaling matters: the signal each number format keeps of a weight matrix, measured.

Shapes: weights [rows, columns] float32; an integer format has one scale per tensor, per row, or per group of
consecutive columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gossamer.mx.codec import encode
from gossamer.mx.formats import FORMATS

F32 = npt.NDArray[np.float32]

SHAPE: Final = (512, 1024)
STD: Final = 0.02
OUTLIER_FRACTION: Final = 0.001
OUTLIER_STDS: Final = 20.0
SCALE_BITS: Final = 16
"""Bits of one scale of the integer formats (MX scales are 8)."""

CONDITIONS: Final = (
    f"{SHAPE[0]} x {SHAPE[1]} normal weights; outliers: {OUTLIER_FRACTION:.1%} of them set to "
    f"{OUTLIER_STDS:.0f} standard deviations; MX scales by EVEN, INT by absolute maximum"
)


@dataclass(frozen=True, kw_only=True)
class FormatRow:
    """Signal-to-quantisation-noise ratio of one format; every figure is measured."""

    format: str
    scaling: str
    """What shares one scale."""
    bits: float
    """Bits per value, scales included."""
    gaussian_db: float
    outliers_db: float


def measure(seed: int = 0) -> list[FormatRow]:
    """SQNR in dB, 10 log10(sum x^2 / sum (x - q)^2), of MX and integer formats under `CONDITIONS`.

    Args:
        seed: of the weights and of the outliers' places.

    Returns:
        One row per format, by element width, MX before INT.  A figure of a heavy-tailed matrix counts the
        energy of the outliers too, which is why a floating-point format may gain from them.
    """
    gaussian, outliers = weights(seed)
    rows: list[FormatRow] = []
    for width in (8, 6, 4):
        for fmt in FORMATS.values():
            if fmt.bits == width:
                quantised = [encode(x, fmt, "even").decode() for x in (gaussian, outliers)]
                name = f"MXFP{width} {fmt.element}"
                rows.append(_row(name, "block of 32", fmt.bits_per_value, gaussian, outliers, quantised))
        if width == 6:
            continue
        columns = SHAPE[1]
        for scaling, group, share in (
            ("group of 32", 32, 32),
            ("group of 128", 128, 128),
            ("per channel", columns, columns),
            ("per tensor", None, SHAPE[0] * columns),
        ):
            quantised = [quantise_int(x, width, group) for x in (gaussian, outliers)]
            bits = width + SCALE_BITS / share
            rows.append(_row(f"INT{width}", scaling, bits, gaussian, outliers, quantised))
    return rows


def weights(seed: int) -> tuple[F32, F32]:
    """Gaussian weights, and the same with outliers of random sign at random places."""
    rng = np.random.default_rng(seed)
    gaussian = (STD * rng.standard_normal(SHAPE)).astype(np.float32)
    outliers = gaussian.copy().reshape(-1)
    places = rng.choice(outliers.size, int(outliers.size * OUTLIER_FRACTION), replace=False)
    outliers[places] = rng.choice([-1.0, 1.0], len(places)) * OUTLIER_STDS * STD
    return gaussian, outliers.reshape(SHAPE)


def quantise_int(x: F32, bits: int, group: int | None) -> F32:
    """Symmetric integers up to 2^(bits-1) - 1, ties to even; ``group`` None is one scale for all."""
    blocks = x.reshape(-1, group) if group else x.reshape(1, -1)
    top = np.float32(2 ** (bits - 1) - 1)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / top
    scale[scale == 0] = 1
    return (np.clip(np.rint(blocks / scale), -top, top) * scale).reshape(x.shape)


def sqnr_db(x: F32, quantised: F32) -> float:
    """Signal-to-quantisation-noise ratio in dB; infinite for an exact copy."""
    noise = float(np.square(x.astype(np.float64) - quantised).sum())
    signal = float(np.square(x.astype(np.float64)).sum())
    return math.inf if noise == 0 else 10 * math.log10(signal / noise)


def _row(
    name: str, scaling: str, bits: float, gaussian: F32, outliers: F32, quantised: Sequence[F32]
) -> FormatRow:
    return FormatRow(
        format=name,
        scaling=scaling,
        bits=round(bits, 3),
        gaussian_db=sqnr_db(gaussian, quantised[0]),
        outliers_db=sqnr_db(outliers, quantised[1]),
    )


def plot_svg(rows: Sequence[FormatRow]) -> str:
    """The rows as an SVG of paired bars; see `gossamer.mx.plot`."""
    from gossamer.mx.plot import bars

    return bars(rows, title="Signal kept by each number format", note=CONDITIONS)
