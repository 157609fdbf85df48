"""What an exam found, as one JSON object and as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gossamer.exam.judge import Verdict
from gossamer.exam.phrasing import FAMILIES
from gossamer.exam.questions import EFFORTS, Question
from gossamer.exam.statistics import Difference, Share, paired_difference, share
from gossamer.records.envelope import Record


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One question, its verdict, and what decoding it took."""

    question: Question
    verdict: Verdict
    num_prompt: int
    num_generated: int
    num_passes: int


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The exact answers of one group of questions, or the copied arguments of one kind."""

    name: str
    exact: Share


class EffortResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one thinking effort gave; tokens are those of the thought."""

    effort: str
    exact: Share
    mean_reasoning_tokens: float


class PassBack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same questions with the earlier turn's reasoning given and with it dropped."""

    kept: Share
    dropped: Share
    difference: Difference


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the run took, pass-back included."""

    duration_s: float
    threads: int
    prompt_tokens: int
    longest_prompt: int
    generated_tokens: int
    passes: int


class ExamReport(Record, frozen=True, kw_only=True, tag="gossamer.nano_exam/1"):
    """One exam.  Every share is measured, on `total` questions (or arguments), greedy, unconstrained."""

    model: str
    gossamer_version: str
    seed: int
    words: str
    max_tokens: int
    questions: int
    exact: Share
    well_formed: Share
    ended: Share
    right_tool: Share
    arguments_copied: Share
    by_category: list[Group]
    by_variant: list[Group]
    by_phrasing: list[Group]
    by_novelty: list[Group]
    by_argument_type: list[Group]
    by_value_kind: list[Group]
    by_tools_offered: list[Group]
    by_arguments: list[Group]
    by_effort: list[EffortResult]
    faults: dict[str, int]
    pass_back: PassBack
    cost: Cost


def groups(
    outcomes: Sequence[Outcome], key: Callable[[Question], str], order: Iterable[str] = ()
) -> list[Group]:
    """Exact answers by a property of the question; questions whose key is empty are left out."""
    found: dict[str, list[bool]] = {name: [] for name in order}
    for outcome in outcomes:
        if name := key(outcome.question):
            found.setdefault(name, []).append(outcome.verdict.exact)
    names = found if order else sorted(found)
    return [Group(name=name, exact=share(found[name])) for name in names if found[name]]


def argument_groups(outcomes: Sequence[Outcome], position: int) -> list[Group]:
    """Copied arguments by type (position 0) or by value kind (position 1)."""
    found: dict[str, list[bool]] = {}
    for outcome in outcomes:
        for argument in outcome.verdict.arguments:
            found.setdefault(str(argument[position]), []).append(argument[2])
    return [Group(name=name, exact=share(found[name])) for name in sorted(found)]


def _efforts(outcomes: Sequence[Outcome]) -> list[EffortResult]:
    found = []
    for effort in EFFORTS:
        verdicts = [o.verdict for o in outcomes if o.question.effort == effort]
        if verdicts:
            mean = sum(v.num_reasoning_tokens for v in verdicts) / len(verdicts)
            exact = share([v.exact for v in verdicts])
            found.append(EffortResult(effort=effort, exact=exact, mean_reasoning_tokens=round(mean, 1)))
    return found


def _novelty(question: Question) -> str:
    if not question.phrasing:
        return ""
    return "test-only phrasing" if FAMILIES[question.phrasing].is_test_only else "shared notation"


def summarise(
    outcomes: Sequence[Outcome], kept: Sequence[Outcome], dropped: Sequence[Outcome], **given: Any
) -> ExamReport:
    """Put a report together.

    Args:
        outcomes: of the main questions.
        kept: of the pass-back questions with the earlier reasoning.
        dropped: of the same questions without it, in the same order.
        given: the fields of `ExamReport` that are not computed from outcomes.
    """
    verdicts = [o.verdict for o in outcomes]
    faults: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.fault:
            faults[verdict.fault] = faults.get(verdict.fault, 0) + 1
    with_reasoning, without = [o.verdict.exact for o in kept], [o.verdict.exact for o in dropped]
    return ExamReport(
        questions=len(outcomes),
        exact=share([v.exact for v in verdicts]),
        well_formed=share([v.well_formed for v in verdicts]),
        ended=share([v.ended for v in verdicts]),
        right_tool=share([v.right_tool for v in verdicts]),
        arguments_copied=share([copied for v in verdicts for *_, copied in v.arguments]),
        by_category=groups(outcomes, lambda q: q.category),
        by_variant=groups(outcomes, lambda q: f"{q.category}: {q.variant}"),
        by_phrasing=groups(outcomes, lambda q: q.phrasing, FAMILIES),
        by_novelty=groups(outcomes, _novelty),
        by_argument_type=argument_groups(outcomes, 0),
        by_value_kind=argument_groups(outcomes, 1),
        by_tools_offered=groups(outcomes, lambda q: str(len(q.tools))),
        by_arguments=groups(outcomes, lambda q: str(len(q.wanted.arguments)) if q.wanted else ""),
        by_effort=_efforts(outcomes),
        faults=dict(sorted(faults.items(), key=lambda item: -item[1])),
        pass_back=PassBack(
            kept=share(with_reasoning),
            dropped=share(without),
            difference=paired_difference(with_reasoning, without, given["seed"]),
        ),
        **given,
    )
