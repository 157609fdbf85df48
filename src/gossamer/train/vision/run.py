"""A run of vision training: its folder, its phases, and what it leaves."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer.config.model import VisionConfig
from gossamer.images.rules import ImageRules
from gossamer.model.load import load
from gossamer.model.vision import Vision
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.errors import TrainError
from gossamer.train.muon import MuonAdam
from gossamer.train.vision.book import Book
from gossamer.train.vision.learn import Sight, book_loss, joint_loss, tower_loss

STATE_FILE, PLAN_FILE, LOG_FILE = "state.pt", "plan.json", "log.jsonl"
CHECKPOINT_EVERY_S = 300.0
PATCH_LIMIT = 64
"""Of an image: larger ones shrink to about 112 x 112 pixels, the size the tower knows."""
MOST_ROWS = 16
"""Of a training picture."""
WARM_UP = 0.02


def nano_tower(text_width: int) -> VisionConfig:
    """The tower of nano: 2.55 million weights, 5.1 MB as BF16."""
    return VisionConfig(
        hidden_size=160,
        intermediate_size=640,
        num_layers=6,
        num_heads=4,
        qkv_size=160,
        pos_emb_height=16,
        pos_emb_width=16,
        projector_hidden_size=160,
        text_hidden_size=text_width,
    )


@dataclass(frozen=True, kw_only=True)
class VisionPlan:
    """What a run does; kept beside its state, so that a stopped run goes on by it.

    Attributes:
        text: Folder of the frozen text network.
        minutes: Of computing by each thread, all phases together: on a machine that other work keeps busy a
            run takes longer instead of learning less.
        shares: Of the time: the book, the tower against it, the tower through the text network.
        seed: Of weights and pictures.
        pictures: Of a step of the tower.
        dialogues: Of a step through the text network.
        turns: Questions of a dialogue at most.
        book_lr: Peak rate of the book.
        lr: Peak rate of the tower's vectors and positions.
        matrix_lr: Peak rate of its matrices.
        joint_scale: Of both rates, in the last phase.
    """

    text: str
    minutes: float
    shares: tuple[float, float, float] = (0.25, 0.6, 0.15)
    seed: int = 1
    pictures: int = 32
    dialogues: int = 8
    turns: int = 3
    book_lr: float = 0.03
    lr: float = 2e-3
    matrix_lr: float = 1e-2
    joint_scale: float = 0.2

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        if not self.minutes > 0:
            raise TrainError(f"minutes must be above 0, got {self.minutes}")


@dataclass(kw_only=True)
class Progress:
    """Where a run stands: seconds of computing by each thread, and steps, of each phase."""

    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    steps: list[int] = field(default_factory=lambda: [0, 0, 0])


PHASES = ("book", "tower", "joint")


class VisionTrainer:
    """Runs a plan, from its beginning or from a saved state.

    Args:
        plan: What to do.
        folder: Where state and log are kept.
        threads: Parts of a step computed side by side; torch itself is given one thread.
        show: Called with each progress line.
    """

    def __init__(
        self, plan: VisionPlan, folder: Path, *, threads: int = 1, show: Callable[[str], None] | None = None
    ) -> None:
        self.plan, self.folder = plan, folder
        self._show = show or (lambda line: print(line, file=sys.stderr, flush=True))
        text = load(plan.text, experts="dense")
        width = text.config.hidden_size
        rules = ImageRules(in_patch_limit=PATCH_LIMIT)
        self.sight = Sight(text, Tokenizer.load(plan.text), rules)
        self.vision = Vision(nano_tower(width), seed=plan.seed)
        self.book = Book(width, MOST_ROWS, plan.seed)
        self.progress = Progress()
        self._threads = max(1, threads)
        self._workers = ThreadPoolExecutor(self._threads, initializer=partial(torch.set_num_threads, 1))
        self._stopping = False
        self._phase = -1
        self._optimizer: torch.optim.Optimizer | None = None
        if (folder / STATE_FILE).is_file():
            self._restore()

    def stop(self) -> None:
        """Let `run` end after the step it is in."""
        self._stopping = True

    def run(self) -> bool:
        """Train until the time is used up or `stop` is called, and save; True where the plan is done.

        Raises:
            TrainError: the loss is not a number any more; the last saved state stays.
        """
        saved = time.monotonic()
        phase = self._next_phase()
        while phase is not None and not self._stopping:
            self._enter(phase)
            self._step(phase)
            if time.monotonic() - saved > CHECKPOINT_EVERY_S:
                self._save()
                saved = time.monotonic()
            phase = self._next_phase()
        self._save()
        return self._next_phase() is None

    def _budget(self, phase: int) -> float:
        return 60 * self.plan.minutes * self.plan.shares[phase]

    def _next_phase(self) -> int | None:
        done = self.progress.seconds
        return next((i for i in range(len(PHASES)) if done[i] < self._budget(i)), None)

    def _enter(self, phase: int) -> None:
        if phase == self._phase:
            return
        plan, self._phase = self.plan, phase
        if phase == 0:
            entries = [self.book.base, self.book.entries]
            groups = [
                {"params": entries, "peak": plan.book_lr},
                {"params": [self.book.scale], "peak": plan.book_lr / 20},
            ]
            self._optimizer = torch.optim.Adam(groups, betas=(0.9, 0.98))
            return
        # The rows' length is the book's from now on.
        scale = self.vision.mm_projector.post_norm.weight
        scale.requires_grad_(False)
        scale.data.copy_(self.book.scale.detach())
        times = plan.joint_scale if phase == 2 else 1.0
        named = [(n, p) for n, p in self.vision.named_parameters() if p.requires_grad]
        self._optimizer = MuonAdam(
            named,
            lr=times * plan.lr,
            matrix_lr=times * plan.matrix_lr,
            side_by_side=self._workers.map,
        )

    def _rate(self, phase: int) -> float:
        """Warm-up, then down in a line."""
        done = self.progress.seconds[phase] / self._budget(phase)
        return min(1.0, done / WARM_UP + 0.02, max(0.03, (1 - done) / (1 - WARM_UP)))

    def _learned(self) -> list[Tensor]:
        assert self._optimizer is not None
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def _step(self, phase: int) -> None:
        started, computed, plan = time.monotonic(), time.process_time(), self.plan
        step, scale = self.progress.steps[phase], self._rate(phase)
        assert self._optimizer is not None
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        learned = self._learned()
        parts = range(self._threads)
        seeds = [f"{plan.seed} {PHASES[phase]} {step} {part}" for part in parts]
        found = list(self._workers.map(partial(self._part, phase, learned), seeds))
        loss = sum(one[0] for one in found) / len(found)
        if not math.isfinite(loss):
            raise TrainError(f"{PHASES[phase]} step {step}: the loss is {loss}; lower the rates in the plan")
        for p, *gradients in zip(learned, *(one[1] for one in found), strict=True):
            present = [g for g in gradients if g is not None]
            p.grad = torch.stack(present).sum(0) / len(found) if present else None
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        self._optimizer.step()
        seconds = time.monotonic() - started
        self.progress.seconds[phase] += (time.process_time() - computed) / self._threads
        self.progress.steps[phase] += 1
        record = {"phase": PHASES[phase], "step": step, "loss": round(loss, 4), "scale": round(scale, 3)}
        record |= {"seconds": round(seconds, 3), "right": _means([one[2] for one in found])}
        self._log(record)

    def _part(
        self, phase: int, learned: Sequence[Tensor], seed: str
    ) -> tuple[float, Sequence[Tensor | None], dict[str, float]]:
        """One thread's share of a step: loss, gradients, and which slots were right."""
        rng, plan = random.Random(seed), self.plan
        right: dict[str, float] = {}
        if phase == 0:
            loss = book_loss(self.sight, self.book, rng, max(1, plan.dialogues // self._threads), plan.turns)
        elif phase == 1:
            drawn = self.sight.draw(rng, max(1, plan.pictures // self._threads))
            loss, right = tower_loss(self.vision, self.book, drawn)
        else:
            drawn = self.sight.draw(rng, max(1, plan.dialogues // self._threads))
            through = joint_loss(self.sight, self.vision, drawn, rng, plan.turns)
            against, right = tower_loss(self.vision, self.book, drawn)
            loss = through + against
        gradients = torch.autograd.grad(loss, list(learned), allow_unused=True)
        return float(loss.detach()), gradients, right

    def _log(self, record: dict[str, Any]) -> None:
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if record["step"] % 20 == 0:
            right = " ".join(f"{slot} {share:.2f}" for slot, share in record["right"].items())
            self._show(
                f"{record['phase']} {record['step']}: loss {record['loss']:.3f}, "
                f"{record['seconds']:.2f} s a step {right}"
            )

    def _save(self) -> None:
        part = self.folder / (STATE_FILE + ".part")
        state = {"vision": self.vision.state_dict(), "book": self.book.state_dict()}
        optimizer = None if self._optimizer is None else self._optimizer.state_dict()
        state |= {"progress": asdict(self.progress), "phase": self._phase, "optimizer": optimizer}
        torch.save(state, part)
        os.replace(part, self.folder / STATE_FILE)

    def _restore(self) -> None:
        path = self.folder / STATE_FILE
        state = torch.load(path, weights_only=True)
        try:
            self.vision.load_state_dict(state["vision"])
            self.book.load_state_dict(state["book"])
            if state["phase"] >= 0:
                self._enter(state["phase"])
                assert self._optimizer is not None
                self._optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainError(f"{path} belongs to another tower or version: {error}") from None
        self.progress = Progress(**state["progress"])


def open_run(folder: Path, *, text: Path, minutes: float | None, seed: int, threads: int) -> VisionTrainer:
    """A new run, or the one that the folder holds, which goes on by its own plan.

    Raises:
        TrainError: a new run without its time, or another text network or time than the run began with.
    """
    file = folder / PLAN_FILE
    if file.is_file():
        tree: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        tree["shares"] = tuple(tree["shares"])
        plan = VisionPlan(**tree)
        if minutes is not None and minutes != plan.minutes:
            raise TrainError(f"{folder} was planned for {plan.minutes} minutes; leave --minutes out")
    elif minutes is None:
        raise TrainError(f"{folder} holds no run; give a new one its --minutes")
    else:
        plan = VisionPlan(text=str(text.resolve()), minutes=minutes, seed=seed)
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(plan), indent=2) + "\n", encoding="utf-8")
    return VisionTrainer(plan, folder, threads=threads)


def _means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    slots = sorted({slot for one in found for slot in one})
    return {
        slot: round(sum(values) / len(values), 3)
        for slot in slots
        if (values := [one[slot] for one in found if slot in one])
    }
