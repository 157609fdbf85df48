"""Which arm of an experiment a conversation was given, and how likely that was."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gossamer.records.envelope import Count, Digest, Record, RecordError, Text, Time

Propensity = Annotated[float, msgspec.Meta(gt=0, le=1)]
"""A probability that is never 0: what cannot be chosen cannot be in the log."""


class Assignment(Record, frozen=True, kw_only=True, tag="gossamer.assignment/1", omit_defaults=True):
    """One random choice, sticky for its conversation.

    ``propensity`` is the probability of the chosen arm at that moment, which is what makes a later
    comparison causal; ``probabilities`` gives all arms and must agree with it.
    """

    time: Time
    experiment: Text
    conversation: Digest
    arm: Text
    propensity: Propensity
    probabilities: dict[str, Propensity]
    components: dict[str, str] = msgspec.field(default_factory=dict)
    """What the arm consists of: model, checkpoint, engine, prompt version."""
    user: Digest | None = None
    stage: Count | None = None
    """Step of a staged ramp."""
    is_forced: bool = False
    """True for an override; such a conversation is left out of causal estimates."""

    def __post_init__(self) -> None:
        """Hold the arm, its propensity and the probabilities together."""
        if self.probabilities.get(self.arm) != self.propensity:
            raise RecordError(
                f"propensity {self.propensity} of arm {self.arm!r} is not its entry in probabilities"
            )
        total = sum(self.probabilities.values())
        if abs(total - 1) > 1e-6:
            raise RecordError(f"probabilities of {self.experiment!r} sum to {total}, not to 1")
