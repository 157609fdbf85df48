"""What `gossamer.engine.sampler` must choose, written plainly: lists, full sorts, one rule at a time."""

import math
from collections.abc import Sequence

import numpy as np

from gossamer.engine.api import SamplingParams


def uniform(seed: int, step: int) -> float:
    """The number that a seed and a step draw."""
    return np.random.Generator(np.random.Philox(key=seed % 2**64, counter=step)).random()


def masked_logits(logits: Sequence[float], params: SamplingParams, banned: frozenset[int], step: int) -> list:
    stops = params.stop_token_ids if params.ignore_eos or step < params.min_tokens else frozenset()
    return [-math.inf if i in banned | stops else float(x) for i, x in enumerate(logits)]


def adjusted_logits(
    masked: Sequence[float], params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]
) -> list[float]:
    adjusted = []
    for token, x in enumerate(masked):
        x += params.logit_bias.get(token, 0.0)
        if token in prompt or token in generated:
            x = x / params.repetition_penalty if x > 0 else x * params.repetition_penalty
        times = list(generated).count(token)
        if times:
            x -= params.frequency_penalty * times + params.presence_penalty
        adjusted.append(x)
    return adjusted


def candidates(adjusted: Sequence[float], params: SamplingParams) -> tuple[list[int], np.ndarray]:
    """The ids that can be drawn, ascending, and the weights of all."""
    order = sorted(range(len(adjusted)), key=lambda i: (-adjusted[i], i))
    with np.errstate(over="ignore"):
        weights = np.exp((np.array(adjusted) - adjusted[order[0]]) / params.temperature)
    kept = sorted(i for i in order if weights[i] >= params.min_p)
    if params.top_k is not None:
        kept = sorted(set(kept) & set(order[: params.top_k]))
    if params.top_p < 1:
        target = params.top_p * weights[kept].sum()
        nucleus, reached = [], 0.0
        for i in sorted(kept, key=lambda i: (-weights[i], i)):
            nucleus.append(i)
            reached += weights[i]
            if reached >= target:
                break
        kept = sorted(nucleus)
    return kept, weights


def pick(
    logits: Sequence[float],
    params: SamplingParams,
    *,
    banned: frozenset[int] = frozenset(),
    prompt: Sequence[int] = (),
    generated: Sequence[int] = (),
) -> int:
    """The token after ``generated``."""
    step = len(generated)
    adjusted = adjusted_logits(masked_logits(logits, params, banned, step), params, prompt, generated)
    if params.temperature == 0:
        return max(range(len(adjusted)), key=lambda i: (adjusted[i], -i))
    kept, weights = candidates(adjusted, params)
    total = 0.0
    for i in kept:
        total += weights[i]
    aim, reached = uniform(params.seed, step) * total, 0.0
    for i in kept:
        reached += weights[i]
        if reached > aim:
            return i
    return max(i for i in kept if weights[i] > 0)


def top_logprobs(masked: Sequence[float], count: int) -> list[tuple[int, float]]:
    peak = max(masked)
    log_total = peak + math.log(math.fsum(math.exp(x - peak) for x in masked))
    order = sorted(range(len(masked)), key=lambda i: (-masked[i], i))[:count]
    return [(i, masked[i] - log_total) for i in order if masked[i] > -math.inf]
