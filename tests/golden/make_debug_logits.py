"""Writes debug_logits.npz: the logits of the debug preset under fixed weights, so that a drift is seen.

Run from the root: ``python tests/golden/make_debug_logits.py``.  The weights come from a seed, not from a
file: a change of the initialisation order is a change of the definition and shows here as well.
"""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from model.small import debug, lively, tokens

SEED = 20_261
NUM_TOKENS = 24


def arrays() -> dict[str, np.ndarray]:
    """What the file holds; the top_k of 16 makes the last eight tokens choose."""
    model = lively(debug(), seed=SEED).eval()
    ids = tokens(model.config, 1, NUM_TOKENS, seed=SEED)
    with torch.no_grad():
        logits = model(ids)[0]
    made = {"token_ids": ids[0].numpy(), "logits": logits.numpy(), "seed": np.array(SEED)}
    return made | {"torch_version": np.array(torch.__version__)}


if __name__ == "__main__":
    np.savez_compressed(Path(__file__).with_name("debug_logits.npz"), **arrays())
