"""`gossamer eval-nano`: the tool exam of the bundled model, or of another small one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from gossamer.exam.needle import ContextReport
    from gossamer.exam.report import ExamReport, Group
    from gossamer.exam.statistics import Share
    from gossamer.model.transformer import Transformer
    from gossamer.text.tokenizer import Tokenizer


def eval_nano(
    *,
    model: str = "nano",
    seed: int = 1,
    words: Path | None = None,
    count: int = 300,
    pass_back: int | None = None,
    max_tokens: int = 512,
    threads: int = 1,
    exact_decoding: bool = False,
    context: str | None = None,
    filler: Path | None = None,
    pictures: int | None = None,
    tower: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Examine a small model: does it choose the right tool and copy every argument?

    Greedy answers, nothing constrained. The training code cannot see the questions; another seed or
    word list gives another exam. For example:

    `gossamer eval-nano`

    `gossamer eval-nano --seed 7 --count 60`

    `gossamer eval-nano --seed 7 --words /usr/share/dict/words --json > exam.json`

    `gossamer eval-nano --context 1k,8k,64k`

    `gossamer eval-nano --pictures 200`

    Args:
        model: nano (bundled), debug (random weights, to try the plumbing), or a model folder.
        seed: Of the questions.
        words: A text file whose words (4 to 14 Latin letters) are half of the words used; default: all
            are invented.
        count: Questions of the main part.
        pass_back: Questions that are put with and without the earlier turn's reasoning; default: a
            sixth of count, at least 20.
        max_tokens: Most tokens of an answer; a longer one counts as wrong.
        threads: CPU threads.
        exact_decoding: Decode token by token, without guesses that are then checked (slower).
        context: Instead of the exam, plant facts in texts of these many tokens and ask for them at the end;
            k is 1,024. Long ones take long: reading grows with the square of the length.
        filler: A text file to plant the facts in; default: neutral sentences.
        pictures: Instead of the exam, show these many pictures and ask one question about each.
        tower: Folder that holds vision/, where that is not the model's own.
        as_json: Print one JSON object (schema gossamer.nano_exam/1, gossamer.nano_context/1 with --context,
            gossamer.nano_pictures/1 with --pictures) instead of tables.
    """
    if pictures is not None:
        return _pictures(model, tower, pictures, seed, threads, as_json)
    if context is not None:
        return _context(model, context, seed, filler, threads, as_json)
    from gossamer.exam.words import WordSource

    source = WordSource.read(words) if words is not None else WordSource()
    network, tokenizer = _load(model, threads)
    from gossamer.exam.questions import Generator
    from gossamer.exam.run import Examiner, hold

    with _Progress("answers") as progress:
        report = hold(
            Examiner(network, tokenizer, max_tokens=max_tokens, guess=not exact_decoding),
            Generator(seed=seed, words=source),
            count=count,
            pass_back=max(20, count // 6) if pass_back is None else pass_back,
            model_name=model,
            words_name=str(words) if words is not None else "invented",
            threads=threads,
            progress=progress,
        )
    if as_json:
        from gossamer.records.envelope import encode

        sys.stdout.write(encode(report).decode())
    else:
        _show(report)
    return 0


def _context(model: str, lengths: str, seed: int, filler: Path | None, threads: int, as_json: bool) -> int:
    """The planted facts."""
    from gossamer.exam import filler as fillers
    from gossamer.exam import needle
    from gossamer.exam.words import WordSource

    tokens = [needle.parse_length(part) for part in lengths.split(",")]
    source = WordSource()
    network, tokenizer = _load(model, threads)
    with _Progress("texts") as progress:
        report = needle.measure(
            network,
            tokenizer,
            tokens,
            seed=seed,
            filler=lambda rng: (
                fillers.sentences(rng, source) if filler is None else fillers.sentences_of(filler, rng)
            ),
            filler_name="neutral sentences" if filler is None else str(filler),
            model_name=model,
            threads=threads,
            progress=progress,
        )
    if as_json:
        from gossamer.records.envelope import encode

        sys.stdout.write(encode(report).decode())
    else:
        _show_context(report)
    return 0


def _pictures(model: str, tower: Path | None, count: int, seed: int, threads: int, as_json: bool) -> int:
    """Pictures with a question each."""
    from gossamer.exam import picture_exam
    from gossamer.exam.errors import ExamError
    from gossamer.kernels.vision_folder import open_tower
    from gossamer.server.load import BUNDLED

    network, tokenizer = _load(model, threads)
    home = tower or (BUNDLED / "nano" if model == "nano" else Path(model))
    found = open_tower(home, network.config)
    if found is None:
        raise ExamError(f"{home} holds no vision tower; train one with `gossamer train vision`")
    viewer = picture_exam.Viewer(model=network, tokenizer=tokenizer, tower=found[0], rules=found[1])
    with _Progress("pictures") as progress:
        report = picture_exam.examine(viewer, model_name=model, seed=seed, count=count, progress=progress)
    if as_json:
        from gossamer.records.envelope import encode

        sys.stdout.write(encode(report).decode())
        return 0
    console = _console()
    console.print(
        f"{report.model}: {count} pictures, seed {seed}, greedy, nothing constrained; measured, with Wilson "
        "95 % intervals"
    )
    _table(console, "right answers, by kind of picture", [report.total, *report.kinds], "pictures")
    _table(console, "right answers, by what was asked", report.slots, "pictures")
    return 0


def _show_context(report: ContextReport) -> None:
    from rich.table import Table

    console = _console()
    console.print(
        f"{report.model}: planted facts found, seed {report.seed}, filler {report.filler}; measured, with "
        "Wilson 95 % intervals"
    )
    depths = " ".join(report.results[0].by_depth)
    table = Table(title="context", title_justify="left")
    table.add_column("tokens", justify="right")
    table.add_column("form")
    for name in ("found", "95 % interval", "of", f"at depth {depths}", "s/1k tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in report.results:
        found = " ".join(f"{share.count}/{share.total}" for share in result.by_depth.values())
        speed = f"{result.s_per_1k_tokens:.2f}"
        table.add_row(f"{result.tokens:,}", result.form, *_cells(result.found), found, speed)
    console.print(table)


def _load(model: str, threads: int) -> tuple[Transformer, Tokenizer]:
    """The network in float32 with its experts decoded once, and its tokenizer."""
    import torch

    from gossamer.config import presets
    from gossamer.exam.errors import ExamError
    from gossamer.model.load import load
    from gossamer.model.transformer import Transformer
    from gossamer.server.load import BUNDLED
    from gossamer.text.tokenizer import Tokenizer

    if threads < 1:
        raise ExamError(f"threads must be at least 1, got {threads}")
    torch.set_num_threads(threads)
    if model == "debug":
        return Transformer(presets.load("debug")).eval(), Tokenizer.bytes_only()
    folder = BUNDLED / "nano" if model == "nano" else Path(model)
    if not (folder / "config.json").is_file():
        raise ExamError(f"no model {model!r}: give nano, debug or a folder that holds config.json")
    return load(folder, experts="dense"), Tokenizer.load(folder)


class _Progress:
    """A bar on stderr, where that is a terminal."""

    def __init__(self, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar.start()
        return lambda done, total: self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def _show(report: ExamReport) -> None:
    """Tables on stdout."""
    console = _console()
    words = "invented words" if report.words == "invented" else f"words of {report.words}"
    console.print(
        f"{report.model}: seed {report.seed}, {words}, {report.questions} questions, greedy, nothing "
        "constrained; measured, with Wilson 95 % intervals"
    )
    _head(console, report)
    for title, groups, unit in _parts(report):
        _table(console, title, groups, unit)
    cost = report.cost
    console.print(
        f"{cost.duration_s:.0f} s on {cost.threads} thread(s); {cost.prompt_tokens:,} prompt tokens (longest "
        f"{cost.longest_prompt:,}), {cost.generated_tokens:,} generated in {cost.passes:,} passes"
    )


def _console() -> Console:
    """As wide as the terminal; elsewhere as wide as the tables need."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=110)


def _parts(report: ExamReport) -> Iterator[tuple[str, list[Group], str]]:
    yield "exact, by category", report.by_category, "questions"
    yield "exact, by variant", report.by_variant, "questions"
    yield "exact, by phrasing", report.by_phrasing, "questions"
    yield "exact, phrasing known or not", report.by_novelty, "questions"
    yield "exact, by tools offered", report.by_tools_offered, "questions"
    yield "exact, by wanted arguments", report.by_arguments, "questions"
    yield "copied, by argument type", report.by_argument_type, "arguments"
    yield "copied, by kind of value", report.by_value_kind, "arguments"


def _head(console: Console, report: ExamReport) -> None:
    from rich.table import Table

    table = Table(title="tool exam", title_justify="left")
    for name in ("measure", "share", "95 % interval", "of"):
        table.add_column(name, justify="left" if name == "measure" else "right")
    rows: tuple[tuple[str, Share], ...] = (
        ("exact: tool and all arguments", report.exact),
        ("well-formed", report.well_formed),
        ("ended", report.ended),
        ("right tool, or none", report.right_tool),
        ("arguments copied", report.arguments_copied),
        *(
            (f"exact at {e.effort} ({e.mean_reasoning_tokens:g} reasoning tokens)", e.exact)
            for e in report.by_effort
        ),
        ("pass-back: reasoning given", report.pass_back.kept),
        ("pass-back: reasoning dropped", report.pass_back.dropped),
    )
    for name, share in rows:
        table.add_row(name, *_cells(share))
    console.print(table)
    gap = report.pass_back.difference
    console.print(
        f"pass-back: {100 * gap.value:+.1f} points by the earlier reasoning, 95 % interval "
        f"{100 * gap.low:+.1f} to {100 * gap.high:+.1f} ({gap.pairs} pairs, bootstrap)"
    )
    if report.faults:
        console.print("first faults: " + ", ".join(f"{name} {n}" for name, n in report.faults.items()))


def _cells(share: Share) -> tuple[str, str, str]:
    interval = f"{100 * share.low:.1f} to {100 * share.high:.1f}"
    return f"{100 * share.share:.1f} %", interval, str(share.total)


def _table(console: Console, title: str, groups: list[Group], unit: str) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("group")
    for name in ("share", "95 % interval", unit):
        table.add_column(name, justify="right")
    for group in groups:
        table.add_row(group.name, *_cells(group.exact))
    console.print(table)
