"""One training run of nano: its folder, its plan, its data, its trainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer.config import presets
from gossamer.model.load import load
from gossamer.model.transformer import Transformer
from gossamer.train import state
from gossamer.train.errors import TrainError
from gossamer.train.graft import graft as put_in
from gossamer.train.initial import prepare_kda
from gossamer.train.loop import Trainer
from gossamer.train.passes import Kernels
from gossamer.train.plan import Plan, after_graft, two_stages
from gossamer.train.prepare import Prepared, prepare, rows, streams

PRESET = "nano"
PLAN_FILE = "plan.json"
GRAFT_ROWS = (("text", 3), ("copy", 5), ("drill", 2), ("dialogue", 2))
"""Kinds of rows that grafted parts are fitted to, and how many of each."""
GRAFT_SEED_OFFSET = 3_000_017


def open_run(
    folder: Path,
    *,
    minutes: float | None = None,
    tokens: int | None = None,
    seed: int = 1,
    start: Path | None = None,
    graft: bool = False,
    kernels: Kernels = "fused",
    cache: Path | None = None,
    data_dir: Path | None = None,
    threads: int = 1,
) -> Trainer:
    """A trainer for a new run, or for one that stopped.

    Args:
        folder: of the run; data, plan, state and log are kept there.
        minutes: budget of training time; at most one of `minutes` and `tokens`.
        tokens: budget in tokens, for the same steps on every machine.
        seed: of weights, data order and dialogues.
        start: an exported folder whose weights a new run begins with.
        graft: put the parts that copy into the weights of `start` first (`train/graft.py`).
        kernels: "fused" native kernels, or "torch".
        cache: unpacked data packages; default `packages` in the folder.
        data_dir: a folder of .txt files instead of the data packages.
        threads: micro-batches computed side by side.

    Raises:
        TrainError: no budget for a new run, another one than the run began with, or `start` is no export.
    """
    plan = _plan(folder, minutes=minutes, tokens=tokens, seed=seed, start=start, graft=graft, kernels=kernels)
    prepared = _prepared(folder, plan, cache, data_dir, start)
    if plan.start_from is not None and start is None and not (folder / state.FILE).exists():
        raise TrainError(
            f"{folder} begins with the weights of {plan.start_from}; name that folder with --start"
        )
    if plan.start_from is None or start is None:
        model = Transformer(presets.load(PRESET), experts="dense", seed=plan.seed)
        prepare_kda(model)
    else:
        model = load(start, experts="dense").train()
        if plan.grafted and not (folder / state.FILE).exists():
            put_in(model, graft_rows(prepared, plan))
    return Trainer(model, plan, streams(prepared, plan), folder, threads=threads)


def graft_rows(prepared: Prepared, plan: Plan) -> Tensor:
    """Rows [B, T] of every kind that the grafted parts shall serve."""
    kinds = rows(prepared, plan, plan.seed + GRAFT_SEED_OFFSET)
    found = [kinds[kind].row(i).ids for kind, count in GRAFT_ROWS for i in range(count)]
    return torch.from_numpy(np.stack(found))


def trained(folder: Path) -> tuple[Transformer, Plan, Prepared, state.Progress]:
    """The model of a run as it stands, computing with the values MXFP4 stores, and where the run stands.

    Raises:
        TrainError: the folder holds no run.
    """
    plan = planned(folder)
    model = Transformer(presets.load(PRESET), experts="dense", expert_fake_quant=True, seed=plan.seed)
    progress = state.restore(folder, model, None)
    return model.eval(), plan, data_of(folder, plan), progress


def planned(folder: Path) -> Plan:
    """The plan of a run.

    Raises:
        TrainError: the folder holds no run.
    """
    if not (folder / PLAN_FILE).is_file():
        raise TrainError(
            f"{folder} holds no run ({PLAN_FILE} is missing); train there first, or name it with --run"
        )
    return Plan.read(folder / PLAN_FILE)


def data_of(folder: Path, plan: Plan) -> Prepared:
    """The data that a run has learned from."""
    return _prepared(folder, plan, None, None)


def _plan(
    folder: Path,
    *,
    minutes: float | None,
    tokens: int | None,
    seed: int,
    start: Path | None,
    graft: bool,
    kernels: Kernels,
) -> Plan:
    if graft and start is None:
        raise TrainError("--graft changes trained weights; name their folder with --start")
    if start is not None and not (start / "config.json").is_file():
        raise TrainError(
            f"--start {start} is no export of a run (config.json is missing); use --export first"
        )
    if minutes is not None and tokens is not None:
        raise TrainError("give --minutes or --tokens, not both")
    settings = {"seed": seed, "kernels": kernels, "start_from": None if start is None else start.name}
    phases = after_graft if graft else two_stages
    asked = None
    if minutes is not None:
        asked = phases("seconds", minutes * 60, **settings)
    elif tokens is not None:
        asked = phases("tokens", float(tokens), **settings)
    path = folder / PLAN_FILE
    if not path.exists():
        if asked is None:
            raise TrainError(f"{folder} holds no run yet; give --minutes or --tokens to begin one")
        folder.mkdir(parents=True, exist_ok=True)
        asked.write(path)
        return asked
    plan = Plan.read(path)
    if asked is not None and replace(asked, phases=plan.phases) != plan:
        raise TrainError(
            f"{folder} holds a run with another plan ({path}); leave the budget out or take another folder"
        )
    return plan


def _prepared(
    folder: Path, plan: Plan, cache: Path | None, data_dir: Path | None, start: Path | None = None
) -> Prepared:
    return prepare(
        folder / "data",
        cache=cache or folder / "packages",
        seed=plan.seed,
        vocab_size=presets.load(PRESET).vocab_size,
        data_dir=data_dir,
        vocabulary_of=start,
    )
