"""A tower at toy size, with weights large enough that every mechanism shows."""

import torch

from gossamer.config.model import VisionConfig
from gossamer.model.vision import Vision


def toy(**changes) -> VisionConfig:
    """Three blocks; heads wider than width / heads, as in the published tower."""
    sizes = {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_layers": 3,
        "num_heads": 2,
        "qkv_size": 32,
        "patch_size": 4,
        "pos_emb_height": 8,
        "pos_emb_width": 8,
        "projector_hidden_size": 24,
        "text_hidden_size": 20,
    }
    return VisionConfig(**{**sizes, **changes})


def lively_vision(config: VisionConfig, seed: int = 0) -> Vision:
    """Norms away from one, positions as large as patches."""
    vision = Vision(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in vision.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return vision.eval()
