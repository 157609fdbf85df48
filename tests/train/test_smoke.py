"""The smoke run: fails above its goal at once, and in full reaches the stated loss."""

import pytest

from gossamer.server.load import BUNDLED
from gossamer.train import smoke
from gossamer.train.errors import TrainError
from gossamer.train.loop import LOG_FILE

VOCABULARY = BUNDLED / "nano"


def test_a_run_that_has_learned_nothing_is_an_error(tmp_path):
    with pytest.raises(TrainError, match=r"ended at \d+\.\d+ nats .* above 2\.0"):
        smoke.smoke(tmp_path, VOCABULARY, tokens=4 * 4096, goal=2.0, show=lambda line: None)


def test_an_earlier_run_is_not_believed(tmp_path):
    (tmp_path / LOG_FILE).write_text('{"step": 0, "phase": "text", "loss": 0.1, "tokens": 1}\n')
    loss = smoke.smoke(tmp_path, VOCABULARY, tokens=4096, goal=10.0, show=lambda line: None)
    assert loss > 5


@pytest.mark.slow
def test_the_smoke_run_reaches_its_loss(tmp_path):
    """All phases of the recipe on nano itself, in a few minutes."""
    loss = smoke.smoke(tmp_path, VOCABULARY, show=lambda line: None)
    assert loss <= smoke.GOAL
