"""The tower that belongs to a model's folder: in its checkpoint, or in a folder "vision" beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gossamer.checkpoint import CheckpointReader
from gossamer.config import hf
from gossamer.config.model import ConfigError, ModelConfig
from gossamer.images.rules import ImageRules, read_rules
from gossamer.kernels.vision import VisionNetwork, has_vision_weights, vision_weights

SUBFOLDER = "vision"


def open_tower(folder: Path, config: ModelConfig) -> tuple[VisionNetwork, ImageRules] | None:
    """The model's tower and how its images are preprocessed; None where it reads text only.

    Files are mapped, not copied, so this takes next to no time.

    Args:
        folder: Of the model.
        config: Of the text network.

    Raises:
        ConfigError: a vision_config that describes no tower, or one for another width of text network.
        CheckpointError: weights are missing or damaged.
        ImageError: preprocessor_config.json cannot be followed.
    """
    beside = folder / SUBFOLDER
    if (beside / hf.FILE_NAME).is_file():
        folder, config = beside, replace(config, vision=hf.read_vision(beside))
    vision = config.vision
    if vision is None:
        return None
    if vision.text_hidden_size != config.hidden_size:
        raise ConfigError(
            f"{folder}: the tower's text_hidden_size is {vision.text_hidden_size}, "
            f"but the text network is {config.hidden_size} wide"
        )
    with CheckpointReader.open(folder) as reader:
        if folder != beside and not has_vision_weights(reader):
            return None
        network = VisionNetwork(vision, vision_weights(config, reader))
    rules = read_rules(folder)
    if (rules.patch_size, rules.merge_size) != (vision.patch_size, vision.merge_size[0]):
        raise ConfigError(
            f"{folder}: images are cut into patches of {rules.patch_size}, merged by {rules.merge_size}, "
            f"but the tower wants {vision.patch_size}, merged by {list(vision.merge_size)}"
        )
    return network, rules
