"""Predicted speed of deployments, with ranges: `gossamer plan predict`."""

from __future__ import annotations

from gossamer.records.envelope import Probability, Record, RecordError, Text, Time, Value


class Range(Value, frozen=True, kw_only=True):
    """A prediction and the range that should hold the truth in 80 of 100 cases."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """A range holds its value."""
        if not self.low <= self.value <= self.high:
            raise RecordError(f"range {self.low}..{self.high} does not hold its value {self.value}")


class Point(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One deployment and load, by the id of the row it was asked for."""

    id: Text
    ttft_ms: Range | None = None
    tpot_ms: Range | None = None
    out_tok_s_total: Range | None = None
    reason: str | None = None
    """Why something could not be predicted."""
    nearest: tuple[str, ...] = ()
    """Ids of the measured rows closest to it."""

    def __post_init__(self) -> None:
        """A gap needs its reason."""
        if None in (self.ttft_ms, self.tpot_ms, self.out_tok_s_total) and not self.reason:
            raise RecordError(f"point {self.id!r} leaves a prediction out without a reason")


class Prediction(Record, frozen=True, kw_only=True, tag="gossamer.prediction/1"):
    """Predictions of one calibration."""

    created: Time
    gossamer_version: Text
    calibration: Text
    """Name and version of the constants used."""
    coverage: Probability
    """The share of truths each range is meant to hold."""
    points: tuple[Point, ...]
