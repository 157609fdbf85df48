"""`scripts/soak.py`: a short run of it, and that it sees what it is there to see."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gossamer.engine.api import SamplingParams, TokenEvent
from gossamer.engine.request import RequestOptions
from gossamer.engine.sequential import generate
from gossamer.kernels import backend

from .fake_runner import FakeRunner

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "soak.py"
MIB = 1 << 20


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]


@pytest.mark.slow
@pytest.mark.skipif(not backend.available(), reason="the native kernels are not built")
def test_half_a_minute_of_random_traffic():
    command = [sys.executable, str(SCRIPT), "--seconds", "30", "--model", "debug"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["basis"] == "measured"
    assert found["compared_whole"] > 0
    assert found["steps"] > 0
    assert "error" not in found


def test_memory_that_grows_is_seen(soak):
    flat = [(float(s), 100 * MIB + (s % 7) * 1000) for s in range(900)]
    found = soak.growth(flat)
    assert not found["grew"]
    assert found["rss_first_third_mib"] == pytest.approx(100, abs=0.1)
    rising = [(s, size + int(s) * 8000) for s, size in flat]
    found = soak.growth(rising)
    assert found["grew"]
    assert found["rss_slope_mib_per_hour"] == pytest.approx(8000 * 3600 / MIB, rel=0.01)
    # What is taken in the beginning is not held against it.
    assert not soak.growth([(s, 50 * MIB if s < 60 else size) for s, size in flat])["grew"]
    with pytest.raises(soak.Wrong, match="too short"):
        soak.growth(flat[:2])


@pytest.mark.parametrize("whole", [True, False])
def test_a_wrong_token_is_seen(soak, whole):
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=1, logprobs=2)
    ask = soak.Ask(prompt=[1, 2, 3], params=params, options=RequestOptions(), leave_after=None)
    runner = FakeRunner(num_blocks=8, num_slots=1, block_size=4)
    judge = SimpleNamespace(reference=runner, counts=soak.Counter())
    got = generate(runner, ask.prompt, params, default_seed=soak.SEED)
    if not whole:
        got = [*got[:4], TokenEvent(token_id=None, index=4, finish_reason="cancelled")]
    soak.Soak.compare(judge, ask, got)
    assert judge.counts["compared_whole" if whole else "compared_in_part"] == 1
    assert judge.counts["tokens_compared"] == (6 if whole else 4)
    got[2] = TokenEvent(token_id=(got[2].token_id + 1) % 13, index=2, finish_reason=None)
    with pytest.raises(soak.Wrong, match="token 2 of"):
        soak.Soak.compare(judge, ask, got)
