"""Blocks that find mistakes: random ones, and every edge of the formats and scale rules."""

import numpy as np

from gossamer.mx import BLOCK, Format
from gossamer.mx.codec import element_table

FLOAT_MAX = np.float32(np.finfo(np.float32).max)


def gaussian(seed: int, num_blocks: int) -> np.ndarray:
    """[num_blocks, 32] normal values, each block with a log-normal scale of its own."""
    rng = np.random.default_rng(seed)
    scale = np.exp2(rng.normal(0, 8, (num_blocks, 1)))
    return (rng.standard_normal((num_blocks, BLOCK)) * scale).astype(np.float32)


def random_bits(seed: int, num_blocks: int) -> np.ndarray:
    """[num_blocks, 32] finite float32 drawn by bit pattern, the exponents of one block close together."""
    rng = np.random.default_rng(seed)
    top = rng.integers(0, 255, (num_blocks, 1))
    exponent = np.clip(top - rng.integers(0, 12, (num_blocks, BLOCK)), 0, 254).astype(np.uint32)
    bits = rng.integers(0, 1 << 23, exponent.shape, dtype=np.uint32) | (exponent << 23)
    return (bits | (rng.integers(0, 2, exponent.shape, dtype=np.uint32) << 31)).view(np.float32)


def neighbours(values: np.ndarray, ulps: int = 1) -> np.ndarray:
    """The values and those up to ``ulps`` steps below and above."""
    bits = np.asarray(values, np.float32).view(np.int32)[:, None] + np.arange(-ulps, ulps + 1, dtype=np.int32)
    return bits.reshape(-1).view(np.float32)


def ties(fmt: Format, seed: int) -> np.ndarray:
    """Blocks of grid values and midpoints, one step around each, under scales across the whole range."""
    table = element_table(fmt)
    grid = np.unique(table[np.isfinite(table) & (table > 0)]).astype(np.float64)
    points = neighbours(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, [grid[0] / 2, grid[-1] * 1.01]]))
    rng = np.random.default_rng(seed)
    points = np.concatenate([points, -points])
    points = (
        points[: len(points) // (BLOCK - 1) * (BLOCK - 1)]
        if len(points) >= BLOCK
        else np.resize(points, BLOCK - 1)
    )
    rows = rng.permuted(points).reshape(-1, BLOCK - 1)
    # One full-range value per block holds the scale where the points are ties.
    rows = np.concatenate([np.full((len(rows), 1), grid[-1], np.float32), rows], axis=1)
    exponents = np.array([-100, -20, -1, 0, 1, 20, 100], np.float64)
    return np.concatenate([np.ldexp(rows.astype(np.float64), int(e)).astype(np.float32) for e in exponents])


def thresholds(seed: int, ulps: int = 2) -> np.ndarray:
    """Blocks whose amax lies at and beside every mantissa a rule turns on, for every float32 exponent."""
    mantissas = np.array([1.0, 1.5, 1.75, 1.875, 1.9375, 2.0 - 2.0**-23])
    exponents = np.arange(-126, 128)
    amax = neighbours(np.ldexp(mantissas[None, :], exponents[:, None]).reshape(-1).astype(np.float32), ulps)
    amax = amax[np.isfinite(amax)]
    rng = np.random.default_rng(seed)
    rest = rng.uniform(-1, 1, (len(amax), BLOCK - 1)) * amax[:, None].astype(np.float64)
    return np.concatenate([amax[:, None], rest.astype(np.float32)], axis=1)


def extremes() -> np.ndarray:
    """Zero blocks, negative zero, subnormals, and the largest float32."""
    tiny = np.float32(2.0**-149)
    rows = [
        np.zeros(BLOCK),
        np.full(BLOCK, -0.0),
        np.where(np.arange(BLOCK) % 2, 0.0, -0.0),
        np.full(BLOCK, tiny),
        -tiny * np.arange(BLOCK),
        np.ldexp(1.0, -118 - np.arange(BLOCK)),
        np.full(BLOCK, FLOAT_MAX),
        np.where(np.arange(BLOCK) % 2, -FLOAT_MAX, 1.0),
        np.concatenate([[-FLOAT_MAX], np.zeros(BLOCK - 1)]),
        np.concatenate([[1.0], np.full(BLOCK - 1, -1e-30)]),
        np.full(BLOCK, 2.0**127),
        np.full(BLOCK, 2.0**-126),
    ]
    return np.stack(rows).astype(np.float32)


def adversarial(fmt: Format, seed: int) -> np.ndarray:
    """All edges together, [n, 32]."""
    return np.concatenate([ties(fmt, seed), thresholds(seed), extremes(), random_bits(seed, 1000)])
