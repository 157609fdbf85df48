"""A tower as the folder "vision" beside a text network: weights as BF16, its config, its preprocessing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.checkpoint import CheckpointWriter
from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.config.fields import VISION
from gossamer.config.model import VisionConfig
from gossamer.images.rules import FILE_NAME as RULES_FILE
from gossamer.images.rules import ImageRules
from gossamer.kernels.vision_folder import SUBFOLDER
from gossamer.model.vision import Vision
from gossamer.train.vision.run import PHASES, VisionTrainer

FACTS_FILE = "training.json"


def export(trainer: VisionTrainer, folder: Path) -> Path:
    """Write the tower of a run, as it stands, beside the text network in ``folder``; returns its folder."""
    out = folder / SUBFOLDER
    write_tower(trainer.vision, trainer.sight.rules, out)
    facts = {
        "parameters": sum(p.numel() for p in trainer.vision.parameters()),
        "plan": asdict(trainer.plan),
        "minutes": [round(s / 60, 1) for s in trainer.progress.seconds],
        "steps": dict(zip(PHASES, trainer.progress.steps, strict=True)),
    }
    facts["plan"].pop("text")
    (out / FACTS_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return out


def write_tower(vision: Vision, rules: ImageRules, out: Path) -> None:
    """Weights, config.json and preprocessor_config.json."""
    out.mkdir(parents=True, exist_ok=True)
    with CheckpointWriter(out, overwrite=True) as writer:
        for name, tensor in vision.state_dict().items():
            writer.add(name, f32_to_bf16(np.ascontiguousarray(tensor.detach().float().numpy())), "BF16")
    _write(out / "config.json", {"vision_config": vision_tree(vision.config)})
    background = rules.background
    media: dict[str, Any] = {
        "patch_size": rules.patch_size,
        "merge_kernel_size": rules.merge_size,
        "in_patch_limit": rules.in_patch_limit,
        "patch_limit_on_one_side": rules.patch_limit_on_one_side,
        "fixed_output_tokens": None,
        "image_mean": list(rules.mean),
        "image_std": list(rules.std),
        "transparent_bg_fill_stage": rules.fill_stage,
    }
    if background is not None:
        media["transparent_bg_config"] = {
            "pattern": background.pattern,
            "chessboard_square_size": background.square_size,
            "chessboard_white_value": background.white,
            "chessboard_gray_value": background.gray,
            "chessboard_square_on_top_left": background.light_on_top_left,
        }
    _write(out / RULES_FILE, {"media_proc_cfg": media})


def vision_tree(config: VisionConfig) -> dict[str, Any]:
    """The published keys of a vision_config."""
    found = {field.names[0]: getattr(config, field.attribute) for field in VISION}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _write(file: Path, tree: dict[str, Any]) -> None:
    file.write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
