"""Weights of a model that nobody trained, for trying the plumbing without a checkpoint and without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.config import count, layout
from gossamer.config.count import VISION_COMPONENTS, TensorSpec
from gossamer.config.model import ModelConfig
from gossamer.kernels import codec
from gossamer.kernels.weights import Weight


def random_weights(config: ModelConfig, seed: int) -> Iterator[Weight]:
    """Every weight of the text network in the form its checkpoint would have; the same seed, the same bits.

    Matrices are normal(0, initializer_range), convolution taps uniform within W^-0.5, norms one,
    A_log = ln(uniform(1, 16)), biases and residual-mix projections zero: what training would begin with.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    prefix = layout.text_prefix(config)
    for spec in count.tensors(config):
        if spec.component in VISION_COMPONENTS or spec.name.endswith(".weight_scale"):
            continue
        yield _weight(spec, spec.name.removeprefix(prefix), config, generator)


def _weight(spec: TensorSpec, name: str, config: ModelConfig, generator: np.random.Generator) -> Weight:
    scale = config.initializer_range
    if name.endswith(".weight_packed"):
        rows, half = spec.shape
        values = generator.standard_normal((rows, 2 * half), np.float32) * np.float32(scale)
        rule = config.quant.scale_rule if config.quant else "even"
        encoded = codec.encode4(values, rule, name=name)
        return Weight(
            name=name.removesuffix(".weight_packed"),
            kind="mxfp4",
            data=encoded.packed,
            scales=encoded.scales,
        )
    if name.endswith("A_log"):
        rates = generator.uniform(1.0, 16.0, config.kda.num_heads)
        return Weight(name=name, kind="vector", data=np.log(rates).astype(np.float32))
    if name.endswith("conv1d.weight"):
        bound = spec.shape[-1] ** -0.5
        taps = generator.uniform(-bound, bound, math.prod(spec.shape))
        return Weight(name=name, kind="vector", data=taps.astype(np.float32))
    if name.endswith(("dt_bias", "e_score_correction_bias", ".bias", "_res_proj.weight")):
        return Weight(name=name, kind="vector", data=np.zeros(math.prod(spec.shape), np.float32))
    if len(spec.shape) == 1:
        return Weight(name=name, kind="vector", data=np.ones(spec.shape, np.float32))
    values = generator.standard_normal(spec.shape, np.float32) * np.float32(scale)
    return Weight(name=name.removesuffix(".weight"), kind="bf16", data=f32_to_bf16(values))
