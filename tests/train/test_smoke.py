"""The smoke run: fails above its goal at once, and in full reaches the stated loss."""

import pytest

from gossamer.config import presets
from gossamer.server.load import BUNDLED
from gossamer.train import smoke
from gossamer.train.errors import TrainError

VOCABULARY = BUNDLED / "nano"


def test_a_run_that_has_learned_nothing_is_an_error(tmp_path):
    with pytest.raises(TrainError, match=r"ended at \d+\.\d+ nats .* above 2\.0"):
        smoke.smoke(tmp_path, VOCABULARY, tokens=4 * 4096, goal=2.0, show=lambda line: None)


@pytest.mark.slow
def test_the_smoke_run_reaches_its_loss(tmp_path):
    """All four phases of the recipe on nano itself, about five minutes."""
    assert presets.load("nano").vocab_size == 4096
    loss = smoke.smoke(tmp_path, VOCABULARY, show=lambda line: None)
    assert loss <= smoke.GOAL
