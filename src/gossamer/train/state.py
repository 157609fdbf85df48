"""The state of a run on disk: enough to go on with exactly the next step."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from gossamer.model.transformer import Transformer
from gossamer.train.errors import TrainError
from gossamer.train.muon import MuonAdam

FILE = "state.pt"


@dataclass(kw_only=True)
class Progress:
    """Where a run stands."""

    step: int = 0
    phase: int = 0
    phase_done: float = 0.0
    """Spent of the phase's budget, in the plan's unit."""
    trunk_done: float = 0.0
    """Spent in phases that train the trunk."""
    rows: dict[str, int] = field(default_factory=dict)
    """Next row of each kind of data; one that is not there has not begun."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Tokens seen per phase."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Training time per phase."""


def save(folder: Path, model: Transformer, optimizer: MuonAdam, progress: Progress) -> None:
    """Write the state next to the old one and replace it in one move."""
    part = folder / (FILE + ".part")
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": asdict(progress),
            "rng": torch.get_rng_state(),
        },
        part,
    )
    os.replace(part, folder / FILE)


def restore(folder: Path, model: Transformer, optimizer: MuonAdam | None) -> Progress:
    """Fill model and optimiser from a folder and return where the run stands.

    Raises:
        TrainError: there is no state, or it belongs to another architecture.
    """
    path = folder / FILE
    if not path.is_file():
        raise TrainError(f"{folder} holds no {FILE}; train there first")
    tree = torch.load(path, weights_only=True)
    try:
        model.load_state_dict(tree["model"])
        if optimizer is not None:
            optimizer.load_state_dict(tree["optimizer"])
    except (RuntimeError, ValueError, KeyError) as error:
        raise TrainError(f"{path} belongs to another model or version: {error}") from None
    torch.set_rng_state(tree["rng"])
    return Progress(**tree["progress"])
