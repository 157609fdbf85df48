"""Prometheus' text exposition format 0.0.4: families of samples in, one page of text out.

The format is described at https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate, pairwise
from typing import Literal

from gossamer.errors import GossamerError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


class MetricError(GossamerError, ValueError):
    """A metric that the format cannot express, or that a scraper would refuse."""


@dataclass(frozen=True)
class Buckets:
    """A histogram's values.

    Attributes:
        bounds: Upper bounds, inclusive, rising and finite; the bucket up to infinity follows them unnamed.
        counts: Values in each bucket alone, len(bounds) + 1 of them.
        total: Sum of all values, in the unit that the metric's name ends with.

    Raises:
        MetricError: bounds that do not rise, counts that do not fit them, or a count below 0.
    """

    bounds: Sequence[float]
    _: KW_ONLY
    counts: Sequence[int]
    total: float

    def __post_init__(self) -> None:
        """Refuse what cannot be a histogram."""
        if not all(map(math.isfinite, self.bounds)) or any(a >= b for a, b in pairwise(self.bounds)):
            raise MetricError(f"bounds must be finite and rising, got {list(self.bounds)!r:.200}")
        if len(self.counts) != len(self.bounds) + 1:
            raise MetricError(
                f"{len(self.bounds)} bounds need {len(self.bounds) + 1} counts, got {len(self.counts)}"
            )
        if min(self.counts) < 0:
            raise MetricError(f"a bucket holds {min(self.counts)} values; counts are at least 0")


@dataclass(frozen=True)
class Sample:
    """One value, or one histogram, and the labels that tell it from its siblings."""

    value: float | Buckets
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricFamily:
    """All samples of one name.

    Attributes:
        name: Such as ``gossamer:time_to_first_token_seconds``; a counter's ends with ``_total``.
        help: One sentence for people.
        kind: What the samples are.
        samples: No two with the same labels.

    Raises:
        MetricError: naming the name, label or value that does not fit.
    """

    name: str
    _: KW_ONLY
    help: str
    kind: Kind
    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        """Refuse what a scraper would refuse."""
        if not _METRIC_NAME.fullmatch(self.name):
            raise MetricError(f"{self.name!r:.80} is no metric name: letters, digits, '_' and ':' only")
        if self.kind == "counter" and not self.name.endswith("_total"):
            raise MetricError(f"{self.name}: the name of a counter ends with _total")
        seen: set[frozenset[tuple[str, str]]] = set()
        for sample in self.samples:
            self._check(sample)
            labels = frozenset(sample.labels.items())
            if labels in seen:
                raise MetricError(f"{self.name}: two samples have the labels {dict(sample.labels)!r:.200}")
            seen.add(labels)

    def _check(self, sample: Sample) -> None:
        if isinstance(sample.value, Buckets) != (self.kind == "histogram"):
            raise MetricError(f"{self.name}: Buckets are for histograms alone, and this is a {self.kind}")
        if self.kind == "counter" and not (isinstance(sample.value, int | float) and sample.value >= 0):
            raise MetricError(f"{self.name}: a counter is at least 0, got {sample.value!r:.80}")
        for label in sample.labels:
            if not _LABEL_NAME.fullmatch(label) or (label == "le" and self.kind == "histogram"):
                raise MetricError(f"{self.name}: {label!r:.80} cannot be the name of a label")


def render(families: Iterable[MetricFamily]) -> str:
    """The page; samples in the order in which they are given.

    Raises:
        MetricError: two families would write samples of the same name.
    """
    lines: list[str] = []
    owner: dict[str, str] = {}
    for family in families:
        for name in {family.name, *(family.name + suffix for suffix in _SUFFIXES[family.kind])}:
            if name in owner:
                raise MetricError(f"{name} is written by two families, {owner[name]} and {family.name}")
            owner[name] = family.name
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in family.samples:
            lines.extend(_lines(family.name, sample))
    return "".join(f"{line}\n" for line in lines)


def _lines(name: str, sample: Sample) -> Iterator[str]:
    value = sample.value
    if not isinstance(value, Buckets):
        yield f"{name}{_labels(sample.labels)} {_number(value)}"
        return
    reached = list(accumulate(value.counts))
    for bound, count in zip([*value.bounds, math.inf], reached, strict=True):
        yield f"{name}_bucket{_labels({**sample.labels, 'le': _number(float(bound))})} {_number(count)}"
    yield f"{name}_sum{_labels(sample.labels)} {_number(value.total)}"
    yield f"{name}_count{_labels(sample.labels)} {_number(reached[-1])}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    """As Go's ParseFloat reads it; whole counts without a point."""
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))
