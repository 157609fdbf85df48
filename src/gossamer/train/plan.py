"""What a training run does in which order, written down before it starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gossamer.train.errors import TrainError
from gossamer.train.passes import Kernels

Data = Literal["copying", "text", "dialogue"]
Attention = Literal["dense", "sparse"]
Trains = Literal["trunk", "indexer", "both"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of training with one kind of data and one way to compute."""

    name: str
    data: Data
    attention: Attention
    trains: Trains
    fake_quant: bool
    budget: float
    """In the plan's unit."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides a run besides its data and its architecture."""

    unit: Literal["seconds", "tokens"]
    """Budgets count training seconds (a run of one hour) or tokens (the same steps everywhere)."""
    phases: tuple[Phase, ...]
    seed: int = 1
    length: int = 1024
    batch_rows: int = 4
    micro_rows: int = 1
    lr: float = 3e-3
    matrix_lr: float = 4e-3
    warmup_steps: int = 30
    decay_from: float = 0.6
    """Share of the trunk's budget after which the rate falls linearly."""
    final_scale: float = 0.03
    clip_norm: float = 1.0
    router_rate: float = 3e-3
    kernels: Kernels = "fused"
    """Native kernels in float32, or torch's operators in bfloat16."""
    kl_every: int = 4
    """In the sparse phase the indexer learns at every n-th step."""
    text_shares: tuple[tuple[str, float], ...] = (("technical", 0.42), ("prose", 0.4), ("python", 0.18))
    """Of the text rows."""
    copying_stage: tuple[tuple[str, float], ...] = (("copy", 0.7), ("easy drill", 0.3))
    """Kinds of rows before all others: copying, once found, serves everything after it."""
    text_stage: tuple[tuple[str, float], ...] = (
        ("text", 0.64),
        ("copy", 0.06),
        ("easy drill", 0.08),
        ("drill", 0.12),
        ("dialogue whole", 0.1),
    )
    """Kinds of rows in the text stage; the copying drills and some dialogues, learned whole, start early."""
    dialogue_stage: tuple[tuple[str, float], ...] = (("text", 0.3), ("drill", 0.05), ("dialogue", 0.65))
    """Kinds of rows in the dialogue stage."""
    decisive_weight: float = 1.0
    """What a token that decides where to copy from counts in the loss (`dialogue/decisive.py`)."""
    start_from: str | None = None
    """Name of the export whose weights the run began with; None for random ones."""
    grafted: bool = False
    """Whether the parts that copy were put into these weights before the first step (`train/graft.py`)."""
    fit_indexers: bool = False
    """Whether indexers begin as the attention of their layers (`train/indexers.py`), not at random."""
    notes: tuple[str, ...] = ()
    """What was changed by hand during the run, for the card."""

    def __post_init__(self) -> None:
        """Refuse plans that cannot run."""
        if self.batch_rows % self.micro_rows:
            raise TrainError(
                f"batch_rows {self.batch_rows} is not a multiple of micro_rows {self.micro_rows}"
            )
        if self.decisive_weight <= 0:
            raise TrainError(
                f"decisive_weight {self.decisive_weight} is not above zero; 1 weighs all tokens alike"
            )
        if not self.phases or any(phase.budget <= 0 for phase in self.phases):
            raise TrainError("every phase needs a budget above zero; give more --minutes or --tokens")

    @property
    def stages(self) -> dict[str, tuple[tuple[str, float], ...]]:
        """Kinds of rows of each stage, with their shares."""
        # The order numbers the stages' seeds.
        return {
            "text": self.text_stage,
            "dialogue": self.dialogue_stage,
            "copying": self.copying_stage,
        }

    @property
    def trunk_budget(self) -> float:
        """Budget of all phases that train the trunk; the learning rate's clock."""
        return sum(phase.budget for phase in self.phases if phase.trains != "indexer")

    def rate(self, step: int, trunk_done: float) -> float:
        """Factor of the peak rates at a step."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        done = min(1.0, trunk_done / self.trunk_budget)
        if done <= self.decay_from:
            return warm
        left = (1 - done) / (1 - self.decay_from)
        return warm * (self.final_scale + (1 - self.final_scale) * left)

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read back what `write` wrote.

        Raises:
            TrainError: the file is damaged or was written by another version.
        """
        try:
            return cls._of(json.loads(path.read_text()))
        except (KeyError, TypeError, ValueError) as error:
            raise TrainError(
                f"{path} is no plan of this version ({error}); begin a new run in another --run folder"
            ) from None

    @classmethod
    def _of(cls, tree: dict[str, Any]) -> Plan:
        phases = tuple(Phase(**phase) for phase in tree.pop("phases"))
        shares = {
            key: tuple((name, share) for name, share in tree.pop(key))
            for key in ("text_shares", "copying_stage", "text_stage", "dialogue_stage")
        }
        notes = tuple(tree.pop("notes", ()))
        tree |= shares
        return cls(phases=phases, notes=notes, **tree)


PHASES: tuple[tuple[str, Data, Attention, Trains, bool, float], ...] = (
    ("copying", "copying", "dense", "trunk", False, 0.025),
    ("text", "text", "dense", "trunk", False, 0.475),
    ("dialogue, dense", "dialogue", "dense", "trunk", True, 0.25),
    ("indexer", "dialogue", "dense", "indexer", True, 0.025),
    ("dialogue, sparse", "dialogue", "sparse", "both", True, 0.225),
)
"""The default recipe: the fields of `Phase`, the last one as a share of the whole budget."""


GRAFTED_PHASES: tuple[tuple[str, Data, Attention, Trains, bool, float], ...] = (
    ("copying", "copying", "dense", "trunk", False, 0.1),
    ("dialogue, dense", "dialogue", "dense", "trunk", True, 0.5),
    ("indexer", "dialogue", "dense", "indexer", True, 0.04),
    ("dialogue, sparse", "dialogue", "sparse", "both", True, 0.36),
)
"""For weights that know text already and begin with grafted parts."""
GRAFTED_STAGES: dict[str, Any] = {
    "copying_stage": (("copy", 0.35), ("drill", 0.25), ("text", 0.25), ("dialogue whole", 0.15)),
    "dialogue_stage": (
        ("text", 0.25),
        ("copy", 0.05),
        ("drill", 0.05),
        ("look-up", 0.35),
        ("easy dialogue", 0.1),
        ("dialogue", 0.2),
    ),
    "decisive_weight": 8.0,
    "lr": 1.5e-3,
    "matrix_lr": 2e-3,
    "text_shares": (("technical", 0.52), ("prose", 0.32), ("python", 0.16)),
    "decay_from": 0.4,
}
"""Of a row's targets, 1,023 are text, some 300 dialogue with 30 choices, or some 300 look-up with 50.

At the rates of a fresh run copying was lost again when dialogues began (docs/log.md).
"""


def after_graft(unit: Literal["seconds", "tokens"], budget: float, **settings: Any) -> Plan:
    """Copying beside text, then dialogues as in `two_stages`."""
    phases = _shared_out(GRAFTED_PHASES, budget)
    return Plan(unit=unit, phases=phases, grafted=True, fit_indexers=True, **GRAFTED_STAGES, **settings)


def two_stages(unit: Literal["seconds", "tokens"], budget: float, **settings: Any) -> Plan:
    """Copying, text, then dialogues with MXFP4 experts: dense, the indexers alone, sparse.

    Copying from the context is learned with dense attention; an indexer can only choose what the attention
    already looks for.
    """
    return Plan(unit=unit, phases=_shared_out(PHASES, budget), **settings)


def _shared_out(
    parts: Sequence[tuple[str, Data, Attention, Trains, bool, float]], budget: float
) -> tuple[Phase, ...]:
    return tuple(
        Phase(
            name=name, data=data, attention=attention, trains=trains, fake_quant=quant, budget=share * budget
        )
        for name, data, attention, trains, quant, share in parts
    )
