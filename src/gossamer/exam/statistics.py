"""Shares with intervals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import sqrt

import msgspec

Z95 = 1.959963984540054
"""Standard normal quantile at 0.975."""
RESAMPLES = 2000


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured share with its Wilson 95 % interval.

    Attributes:
        count: how many did.
        total: of how many.
        share: count / total.
        low: lower end of the interval.
        high: upper end.
    """

    count: int
    total: int
    share: float
    low: float
    high: float


class Difference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mean of paired differences with a bootstrap 95 % interval.

    Attributes:
        pairs: how many.
        value: mean of first minus second.
        low: 2.5 % quantile of the resampled means.
        high: 97.5 % quantile.
    """

    pairs: int
    value: float
    low: float
    high: float


def wilson(count: int, total: int) -> tuple[float, float]:
    """The score interval of a share (Wilson, JASA 22, 1927); 0 to 1 where nothing was counted."""
    if total == 0:
        return 0.0, 1.0
    p, z2 = count / total, Z95 * Z95
    middle = (p + z2 / (2 * total)) / (1 + z2 / total)
    half = Z95 / (1 + z2 / total) * sqrt(p * (1 - p) / total + z2 / (4 * total * total))
    # At the ends the formula gives exactly 0 and 1; rounding must not leave them.
    low = 0.0 if count == 0 else max(0.0, middle - half)
    return low, 1.0 if count == total else min(1.0, middle + half)


def share(flags: Sequence[bool]) -> Share:
    """How often a flag is set."""
    count, total = sum(flags), len(flags)
    low, high = wilson(count, total)
    return Share(
        count=count,
        total=total,
        share=round(count / total, 4) if total else 0.0,
        low=round(low, 4),
        high=round(high, 4),
    )


def paired_difference(first: Sequence[bool], second: Sequence[bool], seed: int) -> Difference:
    """How much more often `first` is set than `second` on the same questions; pairs are resampled."""
    differences = [int(a) - int(b) for a, b in zip(first, second, strict=True)]
    pairs = len(differences)
    if pairs == 0:
        return Difference(pairs=0, value=0.0, low=-1.0, high=1.0)
    rng = random.Random(f"bootstrap {seed}")
    means = sorted(sum(rng.choices(differences, k=pairs)) / pairs for _ in range(RESAMPLES))
    return Difference(
        pairs=pairs,
        value=round(sum(differences) / pairs, 4),
        low=round(means[int(0.025 * RESAMPLES)], 4),
        high=round(means[int(0.975 * RESAMPLES) - 1], 4),
    )
