"""A runnable model from a folder that holds config.json and its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gossamer.checkpoint import CheckpointReader
from gossamer.config import hf
from gossamer.config.model import ModelConfig
from gossamer.model.latent_moe import ExpertStorage
from gossamer.model.state_dict_adapter import load_checkpoint
from gossamer.model.transformer import Transformer


def load(
    directory: str | Path,
    *,
    dtype: torch.dtype = torch.float32,
    experts: ExpertStorage | None = None,
    mxfp8_activations: bool = False,
) -> Transformer:
    """Build the model a folder describes and fill it.

    What the files hold decides where the config is silent or wrong: packed experts stay packed when
    ``weight_packed`` exists, and the indexer's key norm has a bias when the file has one.

    Args:
        directory: Holds config.json and safetensors files.
        dtype: Of everything outside the float32 set: torch.float32 or torch.bfloat16.
        experts: "dense" decodes packed experts; None keeps the form on disk.
        mxfp8_activations: See `Transformer`.

    Returns:
        The model in evaluation mode.

    Raises:
        ConfigError: config.json is missing or describes no model.
        CheckpointError: a tensor is missing, truncated, mis-typed or mis-shaped.
    """
    config = hf.read(directory)
    with CheckpointReader.open(directory) as reader:
        names = reader.names()
        is_packed = any(name.endswith(".weight_packed") for name in names)
        config = _settled(config, names)
        storage = experts if experts is not None else ("packed" if is_packed else "dense")
        model = Transformer(config, experts=storage, mxfp8_activations=mxfp8_activations, seed=None)
        model.cast(dtype)
        load_checkpoint(model, reader)
    return model.eval()


def _settled(config: ModelConfig, names: list[str]) -> ModelConfig:
    """The config with its open question answered by the tensor names."""
    if config.dsa is None or config.dsa.k_norm_bias is not None:
        return config
    has_bias = any(name.endswith("indexer.k_norm.bias") for name in names)
    return replace(config, dsa=replace(config.dsa, k_norm_bias=has_bias))
