"""What an evaluation found: read by reports, gates and the canary's guard."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gossamer.records.envelope import Count, Probability, Record, RecordError, Text, Time, Value


class Interval(Value, frozen=True, kw_only=True):
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float
    level: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.95

    def __post_init__(self) -> None:
        """An interval holds its estimate."""
        if not self.low <= self.value <= self.high:
            raise RecordError(f"interval {self.low}..{self.high} does not hold its estimate {self.value}")


class SignalEstimate(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One signal of one arm."""

    signal: Text
    effect: Interval | None
    """None where the data cannot say."""
    num_judged: Count
    num_unjudged: Count
    """No rule or judge could decide; never counted as zero."""
    rate: Interval | None = None
    """The plain share of positives, descriptive only."""
    minimum_detectable_effect: float | None = None
    category: str | None = None


class Arm(Value, frozen=True, kw_only=True, omit_defaults=True):
    """One variant under comparison."""

    name: Text
    num_sessions: Count
    num_users: Count
    headline: Interval | None
    signals: tuple[SignalEstimate, ...]
    effective_sample_size: float | None = None
    cost_usd_per_session: Interval | None = None


class Flow(Value, frozen=True, kw_only=True):
    """How many sessions got where; every exclusion has a reason and a count."""

    num_read: Count
    num_used: Count
    excluded: dict[str, Count]

    def __post_init__(self) -> None:
        """Nothing leaves the flow unseen."""
        lost = self.num_read - self.num_used - sum(self.excluded.values())
        if lost:
            raise RecordError(
                f"{lost} of {self.num_read} sessions are neither used nor excluded with a reason"
            )


class EvalResult(Record, frozen=True, kw_only=True, tag="gossamer.eval_result/1", omit_defaults=True):
    """One evaluation run."""

    created: Time
    gossamer_version: Text
    claim: Literal["improvement", "association"]
    """"improvement" only where arms were assigned at random with logged propensity."""
    method: Text
    settings: dict[str, str | int | float | bool]
    """Every open choice of the method, by name."""
    baseline: Text
    arms: tuple[Arm, ...]
    flow: Flow
    best: tuple[str, ...] = ()
    """Arms tied for best under simultaneous intervals."""
    assignment_ratio_p: Probability | None = None
    experiment: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that stand for no arm."""
        names = {arm.name for arm in self.arms}
        unknown = sorted(set(self.best) - names)
        if unknown:
            raise RecordError(f"best names {unknown[0]!r}, which is no arm")
