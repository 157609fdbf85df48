"""`gossamer train nano`: train the bundled model, continue a run, export or evaluate it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Literal

from cyclopts import App

app = App(name="train", help="Train the small models that ship with gossamer.")


@app.command
def nano(
    *,
    minutes: float | None = None,
    tokens: int | None = None,
    run: Path = Path("runs/nano"),
    seed: int = 1,
    threads: int = 2,
    start: Path | None = None,
    graft: bool = False,
    kernels: Literal["fused", "torch"] = "fused",
    data_dir: Path | None = None,
    steps: int | None = None,
    export: Path | None = None,
    evaluate: Path | None = None,
    dialogues: int = 200,
    smoke: bool = False,
) -> None:
    """Train nano in two stages, text and then dialogues; called again it goes on where it stopped.

    Args:
        minutes: Training time of a new run.
        tokens: Training tokens of a new run, instead of minutes.
        run: Folder of the run: data, plan, state, log.
        seed: Of weights, data order and dialogues.
        threads: Threads that compute.
        start: Exported folder whose weights a new run begins with, instead of random ones.
        graft: Put heads that copy into these weights before the first step.
        kernels: Native kernels, or torch's operators where no compiler was there at installation.
        data_dir: Folder of .txt files to learn from instead of the data packages.
        steps: Stop after this many steps; the run can go on later.  Ctrl-C stops too.
        export: Write the model of the run to this folder instead of training.
        evaluate: Measure an exported folder instead of training, and add the figures to its card.
        dialogues: Held-out dialogues of an evaluation.
        smoke: Only try the machinery: a few minutes of training on made-up data, nothing fetched,
            that must reach a stated loss.
    """
    import torch

    from gossamer.train import run as running

    torch.set_num_threads(1 if export is None and evaluate is None else threads)
    if smoke:
        _smoke(run, seed, threads, kernels)
    elif export is not None:
        from gossamer.train.export import export_run

        export_run(run, export)
    elif evaluate is not None:
        from gossamer.train.evaluate import evaluate_folder

        evaluate_folder(evaluate, run, num_dialogues=dialogues)
    else:
        trainer = running.open_run(
            run,
            minutes=minutes,
            tokens=tokens,
            seed=seed,
            start=start,
            graft=graft,
            kernels=kernels,
            data_dir=data_dir,
            threads=threads,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: trainer.stop())
        trainer.run(max_steps=steps)


def _smoke(run: Path, seed: int, threads: int, kernels: Literal["fused", "torch"]) -> None:
    from gossamer.server.load import BUNDLED
    from gossamer.train import smoke

    folder = run / "smoke"
    loss = smoke.smoke(folder, BUNDLED / "nano", seed=seed, threads=threads, kernels=kernels)
    print(
        f"{loss:.3f} nats per assistant token (measured), at most {smoke.GOAL} wanted: the smoke run passed"
    )


@app.command
def vision(
    folder: Path | None = None,
    *,
    run: Path = Path("runs/vision"),
    minutes: float | None = None,
    seed: int = 1,
    threads: int = 2,
) -> None:
    """Train a small vision tower beside a frozen text network, and write it into that network's folder.

    Called again it goes on where it stopped; Ctrl-C stops after the step and writes the tower as it stands.
    `gossamer eval-nano --pictures 200` examines it.

    `gossamer train vision build/nano --minutes 90`

    Args:
        folder: Exported folder of the text network; vision/ is written into it.  Default: the bundled nano,
            whose tower is then written into the run's folder.
        run: Folder of the run: plan, state, log.
        minutes: Of computing by each thread in a new run; a busy machine takes longer for them.
        seed: Of weights and pictures.
        threads: Threads that compute.
    """
    import torch

    from gossamer.server.load import BUNDLED
    from gossamer.train.vision import export as exporting
    from gossamer.train.vision import run as running

    torch.set_num_threads(1)
    text = folder or BUNDLED / "nano"
    trainer = running.open_run(run, text=text, minutes=minutes, seed=seed, threads=threads)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: trainer.stop())
    is_done = trainer.run()
    out = exporting.export(trainer, folder or run)
    print(f"{'trained' if is_done else 'stopped early'}: the tower is in {out}")


@app.command
def draft(
    folder: Path,
    *,
    run: Path = Path("runs/nano"),
    minutes: float = 10.0,
    prompts: int = 8,
    new_tokens: int = 128,
    threads: int = 2,
) -> None:
    """Train a draft head beside an exported model, measure what it is worth, and write both below its folder.

    The model itself stays as it is: the head learns to predict what it will say two tokens later.

    `gossamer train draft build/nano --run runs/nano --minutes 10`

    Args:
        folder: Exported folder; draft/ is written into it and its card anew.
        run: The run that it came from, which holds the data.
        minutes: Training time.
        prompts: Held-out prompts of each of the four workloads.
        new_tokens: Longest greedy continuation of a prompt.
        threads: CPU threads.
    """
    from gossamer.train import draft as drafting
    from gossamer.train.errors import TrainError

    asked = {"minutes": minutes, "prompts": prompts, "new-tokens": new_tokens, "threads": threads}
    for name, value in asked.items():
        if value <= 0:
            raise TrainError(f"--{name} is {value}; give a number above zero")
    drafting.build(folder, run, seconds=60 * minutes, prompts=prompts, new_tokens=new_tokens, threads=threads)


@app.command
def card(folder: Path) -> None:
    """Write the card of an exported model anew from the measurements that lie beside it.

    Those are evaluation.json and draft/, and what `gossamer eval-nano --json` printed, kept as exam.json
    and as context.json.

    Args:
        folder: Exported folder.
    """
    from gossamer.train import card as cards

    cards.write(folder)
