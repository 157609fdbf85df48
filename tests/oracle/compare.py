"""How far two implementations are apart, held to the one tolerance table and kept for the report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from numerics import TOLERANCES


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Distance of ``ours`` from ``theirs`` over all values."""

    max_abs: float
    max_over_rms: float
    """Largest difference over the root mean square of the outside values."""
    rel_rms: float
    """Root mean square of the difference over that of the outside values."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of docs/fidelity.md."""

    mechanism: str
    quantity: str
    outside: str
    difference: Difference
    tolerance: str


def to_numpy(x: Tensor | np.ndarray) -> np.ndarray:
    """A float64 copy."""
    return (x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x)).astype(np.float64)


def difference(ours: Tensor | np.ndarray, theirs: Tensor | np.ndarray) -> Difference:
    """Measure; shapes must agree and every value must be finite."""
    a, b = to_numpy(ours), to_numpy(theirs)
    assert a.shape == b.shape, f"shapes differ: ours {a.shape}, theirs {b.shape}"
    assert np.isfinite(a).all(), "a value of ours is not finite"
    assert np.isfinite(b).all(), "a value of theirs is not finite"
    scale = float(np.sqrt(np.mean(b**2)))
    assert scale > 0, "the outside values are all zero, so nothing was compared"
    apart = np.abs(a - b)
    rms = float(np.sqrt(np.mean(apart**2)))
    return Difference(
        max_abs=float(apart.max()), max_over_rms=float(apart.max()) / scale, rel_rms=rms / scale
    )


def within(measured: Difference, tolerance: str) -> bool:
    """Whether both figures keep to the row ("oracle", "float32", tolerance) of the table."""
    row = TOLERANCES["oracle", "float32", tolerance]
    return measured.rel_rms <= row.relative_rms and measured.max_over_rms <= row.max_over_rms
