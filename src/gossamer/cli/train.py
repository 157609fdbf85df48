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
    kernels: Literal["fused", "torch"] = "fused",
    data_dir: Path | None = None,
    steps: int | None = None,
    export: Path | None = None,
    evaluate: Path | None = None,
    dialogues: int = 200,
) -> None:
    """Train nano in two stages, text and then dialogues; called again it goes on where it stopped.

    Args:
        minutes: Training time of a new run.
        tokens: Training tokens of a new run, instead of minutes.
        run: Folder of the run: data, plan, state, log.
        seed: Of weights, data order and dialogues.
        threads: Threads that compute.
        start: Exported folder whose weights a new run begins with, instead of random ones.
        kernels: Native kernels, or torch's operators where no compiler was there at installation.
        data_dir: Folder of .txt files to learn from instead of the data packages.
        steps: Stop after this many steps; the run can go on later.  Ctrl-C stops too.
        export: Write the model of the run to this folder instead of training.
        evaluate: Measure an exported folder instead of training, and add the figures to its card.
        dialogues: Held-out dialogues of an evaluation.
    """
    import torch

    from gossamer.train import run as running

    torch.set_num_threads(1 if export is None and evaluate is None else threads)
    if export is not None:
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
            kernels=kernels,
            data_dir=data_dir,
            threads=threads,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: trainer.stop())
        trainer.run(max_steps=steps)
