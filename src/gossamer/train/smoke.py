"""A short training run on made-up data: every phase of the recipe, anywhere, with a loss it must reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer.config import presets
from gossamer.model.transformer import Transformer
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import curve, state
from gossamer.train.dialogue.generate import Generator
from gossamer.train.drill import Drills
from gossamer.train.errors import TrainError
from gossamer.train.initial import prepare_kda
from gossamer.train.loop import LOG_FILE, Rows, Trainer
from gossamer.train.passes import Kernels
from gossamer.train.plan import two_stages
from gossamer.train.run import PLAN_FILE
from gossamer.train.streams import DialogueRows, DrillRows, MixedRows, RowSource

TOKENS = 200_000
"""Under five minutes from 700 tokens/s on."""
LAST_STEPS = 8
GOAL = 2.4
"""Nats per assistant token of the last steps; a uniform guess over nano's vocabulary costs 8.3."""
STAGES = {
    "copying_stage": (("easy drill", 1.0),),
    "text_stage": (("easy drill", 0.4), ("dialogue whole", 0.6)),
    "dialogue_stage": (("dialogue", 1.0),),
}


def smoke(
    folder: Path,
    vocabulary: Path,
    *,
    seed: int = 1,
    threads: int = 2,
    kernels: Kernels = "fused",
    tokens: int = TOKENS,
    goal: float = GOAL,
    show: Callable[[str], None] | None = None,
) -> float:
    """Train nano from random weights through all its phases and return the loss it ends with.

    Args:
        folder: for plan, state and log; a smoke run of before is replaced, so that no old loss is believed.
        vocabulary: a folder with a vocabulary, such as the bundled model's.
        seed: of weights, drills and dialogues.
        threads: micro-batches computed side by side.
        kernels: of the run.
        tokens: how long.
        goal: the loss that must be reached.
        show: called with each progress line.

    Returns:
        Mean loss of the last `LAST_STEPS` steps, nats per token of the assistant.

    Raises:
        TrainError: the loss stayed above `goal`.
    """
    plan = two_stages("tokens", float(tokens), seed=seed, kernels=kernels, warmup_steps=8, **STAGES)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (state.FILE, LOG_FILE):
        (folder / name).unlink(missing_ok=True)
    plan.write(folder / PLAN_FILE)
    model = Transformer(presets.load("nano"), experts="dense", seed=seed)
    prepare_kda(model)
    tokenizer = Tokenizer.load(vocabulary)
    easy, every = Generator(seed, difficulty=0.3), Generator(seed + 1, difficulty=0.3)
    known: dict[str, RowSource] = {
        "easy drill": DrillRows(Drills(seed, difficulty=0.3), tokenizer, plan.length),
        "dialogue": DialogueRows(easy, tokenizer, plan.length),
        "dialogue whole": DialogueRows(every, tokenizer, plan.length, everything=True),
    }
    data: dict[str, Rows] = {
        name: MixedRows({kind: (known[kind], share) for kind, share in shares}, seed)
        for name, shares in plan.stages.items()
    }
    Trainer(model, plan, data, folder, show=show, threads=threads).run()
    last = [record["loss"] for record in curve.read_log(folder / LOG_FILE)][-LAST_STEPS:]
    loss = sum(last) / len(last)
    if loss > goal:
        raise TrainError(
            f"the smoke run ended at {loss:.3f} nats per assistant token, above {goal}: this build does not "
            f"learn as it should; its log is {folder / LOG_FILE}"
        )
    return loss
