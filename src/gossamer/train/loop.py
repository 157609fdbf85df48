"""The training loop: phases, steps, router balance, checkpoints, log.

Shape legend: B rows, T tokens, V vocabulary, E experts.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.model.latent_moe import LatentMoE
from gossamer.model.transformer import Transformer
from gossamer.train import state
from gossamer.train.errors import TrainError
from gossamer.train.indexers import fit_indexers
from gossamer.train.muon import MuonAdam
from gossamer.train.passes import Job, open_passes
from gossamer.train.plan import Phase, Plan
from gossamer.train.streams import Batch

LOG_FILE = "log.jsonl"
CHECKPOINT_EVERY_S = 300.0
LOADS_EVERY = 20
"""Steps between two records of every expert's load, for the plot of the routers' balance."""


class Rows(Protocol):
    """Training data by row number."""

    def batch(self, first_row: int, num_rows: int) -> Batch:
        """Rows first_row .. first_row + num_rows - 1."""
        ...


class Trainer:
    """Runs a plan on a model, from its beginning or from a saved state.

    Args:
        model: with dense experts.
        plan: what to do.
        data: the rows of each stage, by the name that its phases give.
        folder: where state and log are kept.
        show: called with each progress line.
        threads: micro-batches computed side by side.  torch itself should be given one thread: its own pool
            would only wait, spinning, for cores that these threads use.
    """

    def __init__(
        self,
        model: Transformer,
        plan: Plan,
        data: Mapping[str, Rows],
        folder: Path,
        show: Callable[[str], None] | None = None,
        threads: int = 1,
    ):
        self.model = model
        self.plan = plan
        self.data = data
        self.folder = folder
        self.show = show or (lambda line: print(line, file=sys.stderr, flush=True))
        self.indexer = {n: p for n, p in model.named_parameters() if ".indexer." in n}
        self.trunk = {n: p for n, p in model.named_parameters() if n not in self.indexer and p.requires_grad}
        self._workers = ThreadPoolExecutor(
            min(threads, plan.batch_rows // plan.micro_rows),
            initializer=partial(torch.set_num_threads, 1),
        )
        self.optimizer = MuonAdam(
            [*self.trunk.items(), *self.indexer.items()],
            lr=plan.lr,
            matrix_lr=plan.matrix_lr,
            side_by_side=self._workers.map,
        )
        self._passes = open_passes(model, plan.kernels)
        self._balanced = {m.layer: m for m in model.modules() if isinstance(m, LatentMoE)}
        self._stopping = False
        self.progress = state.Progress()
        if (folder / state.FILE).exists():
            self.progress = state.restore(folder, model, self.optimizer)
            self.optimizer.set_peaks(plan.lr, plan.matrix_lr)
            self._log({"event": "resumed"})

    def run(self, max_steps: int | None = None) -> None:
        """Train until the plan is done, `max_steps` steps are, or `stop` is called; then save the state.

        Raises:
            TrainError: the loss is not a number any more; the last saved state stays.
        """
        done = 0
        saved = time.monotonic()
        while self.progress.phase < len(self.plan.phases) and not self._stopping:
            if max_steps is not None and done >= max_steps:
                break
            self._step(self.plan.phases[self.progress.phase])
            done += 1
            if time.monotonic() - saved > CHECKPOINT_EVERY_S:
                self._save()
                saved = time.monotonic()
        self._save()

    def stop(self) -> None:
        """Let `run` end after the step it is in."""
        self._stopping = True

    def _save(self) -> None:
        state.save(self.folder, self.model, self.optimizer, self.progress)

    def _step(self, phase: Phase) -> None:
        started = time.monotonic()
        p, plan = self.progress, self.plan
        batch = self.data[phase.data].batch(p.rows.get(phase.data, 0), plan.batch_rows)
        if phase.trains == "indexer" and plan.fit_indexers and p.phase_done == 0:
            fit_indexers(self.model, torch.from_numpy(batch.ids))
        scale = plan.rate(p.step, p.trunk_done)
        self.optimizer.set_scale(1.0 if phase.trains == "indexer" else scale)
        with_kl = phase.trains == "indexer" or (phase.trains == "both" and p.step % plan.kl_every == 0)
        record, loads = self._gradients(phase, batch, with_kl)
        self._check(record, "loss")
        if phase.trains != "indexer":
            own = [x for x in self.trunk.values() if x.grad is not None]
            record["grad_norm"] = float(torch.nn.utils.clip_grad_norm_(own, plan.clip_norm))
            self._check(record, "grad_norm")
        self.optimizer.step()
        if phase.trains != "indexer":
            self._balance(loads, plan.router_rate * scale)
        seconds = time.monotonic() - started
        record |= {"step": p.step, "phase": phase.name, "scale": round(scale, 4), "tokens": batch.num_tokens}
        record |= {"seconds": round(seconds, 3), "overload": _overload(loads)}
        if p.step % LOADS_EVERY == 0:
            record["loads"] = _shares(loads)
        self._advance(phase, batch.num_tokens, seconds)
        self._log(record)
        self._show(record)

    def _check(self, record: dict[str, Any], name: str) -> None:
        """Stop before a step that would ruin the weights; the state on disk is from before it."""
        if not math.isfinite(record[name]):
            what = "loss" if name == "loss" else "norm of the gradient"
            raise TrainError(
                f"step {self.progress.step}: the {what} is {record[name]}; lower the rates in the plan and "
                "call again, the last saved state is kept"
            )

    def _gradients(
        self, phase: Phase, batch: Batch, with_kl: bool
    ) -> tuple[dict[str, Any], dict[int, Tensor]]:
        """Sum the gradients of a batch over its micro-batches; return what to log and the experts' loads.

        Micro-batches are computed side by side, one thread each: small products gain more from that than from
        two threads inside every operation.  They are added in order, so the sum does not depend on timing.
        """
        trunk = phase.trains != "indexer"
        for parameter in self.trunk.values():
            parameter.requires_grad_(trunk)
        wanted: list[Tensor] = [*(self.trunk.values() if trunk else ())]
        wanted += self.indexer.values() if with_kl else ()
        for parameter in (*self.trunk.values(), *self.indexer.values()):
            parameter.grad = None
        self._passes.begin_step(phase.fake_quant)
        found = self._workers.map(partial(self._passes.run, wanted=wanted), self._jobs(phase, batch, with_kl))
        sums: dict[str, float] = {"loss": 0.0, "kl": 0.0}
        kinds: dict[str, list[float]] = {}
        loads: dict[int, Tensor] = {}
        recalls: list[float] = []
        for number, result in enumerate(found):
            sums["loss"] += result.loss
            sums["kl"] += result.kl
            self._by_kind(kinds, batch, number, result.loss)
            recalls += [] if result.recall is None else [result.recall]
            for layer, load in result.loads.items():
                loads[layer] = loads.get(layer, 0) + load
            for parameter, gradient in zip(wanted, result.gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        if not with_kl:
            del sums["kl"]
        elif recalls:
            sums["recall"] = sum(recalls) / len(recalls)
        sums |= {f"loss {kind}": loss / max(1.0, asked) for kind, (loss, asked) in kinds.items()}
        return {name: round(value, 5) for name, value in sums.items()}, loads

    def _jobs(self, phase: Phase, batch: Batch, with_kl: bool) -> list[Job]:
        plan = self.plan
        weights = self._weights(batch)
        asked = max(1.0, float(weights.sum()))
        same = plan.decisive_weight == 1 or not batch.decisive.any()
        return [
            Job(
                ids=torch.from_numpy(batch.ids[start : start + plan.micro_rows]),
                targets=torch.from_numpy(batch.targets[start : start + plan.micro_rows]),
                weights=None if same else torch.from_numpy(weights[start : start + plan.micro_rows]),
                scale=1 / asked,
                kl_scale=plan.micro_rows / plan.batch_rows if with_kl else None,
                mode=phase.attention,
                trunk=phase.trains != "indexer",
            )
            for start in range(0, plan.batch_rows, plan.micro_rows)
        ]

    def _weights(self, batch: Batch) -> np.ndarray:
        """[B, T] float32: what each target counts in the loss, zero where nothing is asked."""
        asked = (batch.targets >= 0).astype(np.float32)
        return np.where(batch.decisive > 0, self.plan.decisive_weight * asked, asked).astype(np.float32)

    def _by_kind(self, kinds: dict[str, list[float]], batch: Batch, number: int, loss: float) -> None:
        """Add a micro-batch's loss to its kind of data, where all its rows are of one kind."""
        rows = slice(number * self.plan.micro_rows, (number + 1) * self.plan.micro_rows)
        if len(set(batch.kinds[rows])) == 1:
            weights = self._weights(batch)
            entry = kinds.setdefault(batch.kinds[rows][0], [0.0, 0.0])
            entry[0] += loss * float(weights.sum())
            entry[1] += float(weights[rows].sum())

    def _balance(self, loads: dict[int, Tensor], rate: float) -> None:
        """Raise the selection bias of experts below the mean load, lower the others; no auxiliary loss."""
        for layer, load in loads.items():
            gap = load.float().mean() - load.float()
            with torch.no_grad():
                self._balanced[layer].gate.e_score_correction_bias.add_(rate * gap.sign())

    def _advance(self, phase: Phase, num_tokens: int, seconds: float) -> None:
        p = self.progress
        spent = seconds if self.plan.unit == "seconds" else num_tokens
        p.step += 1
        p.rows[phase.data] = p.rows.get(phase.data, 0) + self.plan.batch_rows
        p.tokens[phase.name] = p.tokens.get(phase.name, 0) + num_tokens
        p.seconds[phase.name] = p.seconds.get(phase.name, 0.0) + seconds
        p.phase_done += spent
        if phase.trains != "indexer":
            p.trunk_done += spent
        if p.phase_done >= phase.budget:
            p.phase, p.phase_done = p.phase + 1, 0.0

    def _log(self, record: dict[str, Any]) -> None:
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as out:
            out.write(json.dumps({"time": round(time.time(), 1)} | record) + "\n")

    def _show(self, record: dict[str, Any]) -> None:
        p, plan = self.progress, self.plan
        left = sum(phase.budget for phase in plan.phases[p.phase :]) - p.phase_done
        speed = record["tokens"] / record["seconds"]
        eta = left if plan.unit == "seconds" else left / speed
        kl = f" kl {record['kl']:.3f}" if "kl" in record else ""
        self.show(
            f"{record['phase']} step {record['step']} loss {record['loss']:.4f}{kl} "
            f"rate {record['scale']:.3f} {speed:.0f} tok/s, {eta / 60:.1f} min left"
        )


def _overload(loads: dict[int, Tensor]) -> float:
    """Largest expert load over the mean, worst layer."""
    if not loads:
        return 0.0
    return round(max(float(load.max() / load.float().mean()) for load in loads.values()), 3)


def _shares(loads: dict[int, Tensor]) -> dict[str, list[float]]:
    """Per layer the load of each expert [E] over the mean, 1.0 where balanced."""
    return {
        str(layer): [round(float(x), 3) for x in load.float() / load.float().mean().clamp(min=1e-9)]
        for layer, load in sorted(loads.items())
    }
