"""Choosing a token from logits; the same seed chooses the same tokens.  V = vocabulary."""

from __future__ import annotations

import numpy as np

from gossamer.engine.api import EngineError, Logits, SamplingParams


class Sampler:
    """The random stream and mask state of one sequence."""

    def __init__(self, params: SamplingParams, *, default_seed: int | None = None):
        self._params = params
        seed = default_seed if params.seed is None else params.seed
        self._random = np.random.Generator(np.random.PCG64(None if seed is None else seed & (2**64 - 1)))
        self._mask_state = None if params.logit_mask is None else params.logit_mask.start()

    def pick(self, logits: Logits) -> tuple[int, float]:
        """The next token and its log-probability at temperature 1.

        Args:
            logits: [V] float32.

        Raises:
            EngineError: NaN or +inf logits, or a mask that forbids everything.
        """
        mask = self._params.logit_mask
        if mask is not None:
            logits = mask.apply(self._mask_state, logits)
        peak = logits.max()
        if np.isnan(peak) or peak == np.inf:
            raise EngineError("the model produced NaN or infinite logits; its weights are damaged")
        if peak == -np.inf:
            raise EngineError("the logit mask forbids every token")
        shifted = logits.astype(np.float64) - peak
        token_id = int(logits.argmax()) if self._params.temperature == 0 else self._draw(shifted)
        if mask is not None:
            self._mask_state = mask.advance(self._mask_state, token_id)
        return token_id, float(shifted[token_id] - np.log(np.exp(shifted).sum()))

    def _draw(self, shifted: np.ndarray) -> int:
        # A tiny temperature sends all but the peak to -inf, which is what it means.
        with np.errstate(over="ignore"):
            weights = np.exp(shifted / self._params.temperature)
        if self._params.top_p < 1:
            weights = _nucleus(weights, self._params.top_p)
        cumulative = weights.cumsum()
        # side="right" never lands on a token of weight 0.
        drawn = int(cumulative.searchsorted(self._random.random() * cumulative[-1], side="right"))
        return min(drawn, int(np.flatnonzero(weights)[-1]))


def _nucleus(weights: np.ndarray, top_p: float) -> np.ndarray:
    """Keep the fewest likeliest tokens that reach ``top_p`` together; lower ids first among equals."""
    order = np.argsort(-weights, kind="stable")
    reached = weights[order].cumsum()
    keep = order[: int(reached.searchsorted(top_p * reached[-1])) + 1]
    kept = np.zeros_like(weights)
    kept[keep] = weights[keep]
    return kept
