"""Hold an exam: put the questions, decode the answers, judge them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import gossamer
from gossamer.exam import decode, judge
from gossamer.exam.errors import ExamError
from gossamer.exam.questions import Generator, Question
from gossamer.exam.report import Cost, ExamReport, Outcome, summarise
from gossamer.model.transformer import Transformer
from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer

MAX_TOKENS = 512
REMEMBERED = 4
"""Earlier answers of the same effort that guesses are taken from."""
Progress = Callable[[int, int], None]


@dataclass
class Examiner:
    """Puts questions to one model.

    Attributes:
        model: in evaluation mode.
        tokenizer: its vocabulary.
        max_tokens: most tokens of an answer; one that is longer has not ended and is not exact.
        guess: decode with guessed tokens, which gives the same answers sooner.
    """

    model: Transformer
    tokenizer: Tokenizer
    max_tokens: int = MAX_TOKENS
    guess: bool = True
    _answers: dict[tuple[str, str], list[list[int]]] = field(default_factory=dict)

    def ask(self, question: Question) -> Outcome:
        """Let the model answer, and judge the answer."""
        rendered = judge.prompt(question, self.tokenizer)
        stop = self.tokenizer.special(specials.END_OF_MSG)
        if self.guess:
            earlier = self._answers.setdefault((question.category, question.effort), [])
            texts = [*earlier[-REMEMBERED:], judge.reference_ids(question, self.tokenizer)]
            made = decode.guessed_greedy(self.model, rendered.ids, stop, self.max_tokens, texts)
            earlier.append(made.ids)
        else:
            made = decode.plain_greedy(self.model, rendered.ids, stop, self.max_tokens)
        answer = judge.read(made.ids, question, self.tokenizer, rendered.start)
        return Outcome(
            question=question,
            verdict=judge.judge(answer, question),
            num_prompt=len(rendered.ids),
            num_generated=len(made.ids),
            num_passes=made.num_passes,
        )


def hold(
    examiner: Examiner,
    generator: Generator,
    *,
    count: int,
    pass_back: int,
    model_name: str,
    words_name: str,
    threads: int,
    progress: Progress | None = None,
) -> ExamReport:
    """Put `count` questions, and `pass_back` ones twice.

    Args:
        examiner: holds the model.
        generator: makes the questions.
        count: questions of the main part.
        pass_back: questions of the pass-back part; each is put with and without the earlier reasoning.
        model_name: for the report.
        words_name: where the words came from, for the report.
        threads: for the report.
        progress: told how many of how many answers are there.

    Raises:
        ExamError: a count that is not positive, or a negative one.
    """
    if count < 1 or pass_back < 0:
        raise ExamError(f"count must be at least 1 and pass-back at least 0, got {count} and {pass_back}")
    began = time.perf_counter()
    main = [generator.question(number) for number in range(count)]
    extra = [generator.pass_back(number) for number in range(pass_back)]
    questions = [*main, *extra, *(question.without_reasoning() for question in extra)]
    outcomes: list[Outcome] = []
    for question in questions:
        outcomes.append(examiner.ask(question))
        if progress is not None:
            progress(len(outcomes), len(questions))
    return summarise(
        outcomes[:count],
        outcomes[count : count + pass_back],
        outcomes[count + pass_back :],
        model=model_name,
        gossamer_version=gossamer.__version__,
        seed=generator.seed,
        words=words_name,
        max_tokens=examiner.max_tokens,
        cost=_cost(outcomes, time.perf_counter() - began, threads),
    )


def _cost(outcomes: Sequence[Outcome], duration_s: float, threads: int) -> Cost:
    return Cost(
        duration_s=round(duration_s, 1),
        threads=threads,
        prompt_tokens=sum(o.num_prompt for o in outcomes),
        longest_prompt=max(o.num_prompt for o in outcomes),
        generated_tokens=sum(o.num_generated for o in outcomes),
        passes=sum(o.num_passes for o in outcomes),
    )
