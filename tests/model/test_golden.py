from pathlib import Path

import numpy as np
import torch

from golden.make_debug_logits import SEED, arrays
from numerics import assert_close

FILE = Path(__file__).parents[1] / "golden" / "debug_logits.npz"


def test_logits_are_the_recorded_ones():
    recorded, now = np.load(FILE), arrays()
    assert int(recorded["seed"]) == SEED
    assert np.array_equal(recorded["token_ids"], now["token_ids"])
    got, want = torch.from_numpy(now["logits"]), torch.from_numpy(recorded["logits"])
    assert_close(got, want, ("model", "float32", "golden"), f"made with torch {recorded['torch_version']}")
