"""A run as a model folder: packed weights, config, vocabulary, card."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from gossamer.checkpoint import CheckpointWriter
from gossamer.config import hf
from gossamer.model.state_dict_adapter import to_checkpoint
from gossamer.train import card, curve
from gossamer.train.loop import LOG_FILE
from gossamer.train.run import trained


def export_run(run: Path, out: Path) -> None:
    """Write the model of a run, as it stands, to a folder that `gossamer serve` loads.

    The experts are encoded by the rule they were trained with, so the file holds exactly the trained model;
    everything else is rounded to bfloat16 as the published layout wants it.

    Raises:
        TrainError: the folder holds no run.
    """
    model, plan, prepared, progress = trained(run)
    out.mkdir(parents=True, exist_ok=True)
    with CheckpointWriter(out, overwrite=True) as writer:
        for name, array, dtype in to_checkpoint(model):
            writer.add(name, array, dtype)
    hf.write(model.config, out / "config.json")
    prepared.tokenizer.save(out)
    records = curve.read_log(run / LOG_FILE)
    points = curve.points(records)
    curve.draw_loss(points, out / card.CURVE_FILE, "nano: training loss")
    balance = curve.loads(records)
    if balance:
        curve.draw_loads(balance, out / card.LOADS_FILE, "nano: load of the experts")
    facts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "plan": json.loads(json.dumps(asdict(plan))),
        "finished": progress.phase >= len(plan.phases),
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": {name: round(value, 1) for name, value in progress.seconds.items()},
        "final_loss": {point.phase: round(point.loss, 4) for point in points},
        "data": prepared.manifest,
        "overlap": json.loads((prepared.folder / "overlap.json").read_text(encoding="utf-8")),
        "load_plot": bool(balance),
        "bytes": sum(
            entry.stat().st_size for entry in os.scandir(out) if entry.name.endswith(".safetensors")
        ),
    }
    (out / card.FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    (out / card.EVALUATION_FILE).unlink(missing_ok=True)
    card.write(out)
