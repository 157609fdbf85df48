import asyncio
import math
import os
import shutil
from pathlib import Path

import pytest

from gossamer.checkpoint.writer import CheckpointWriter
from gossamer.cli.serve import serve
from gossamer.config import hf, presets
from gossamer.engine.api import EngineError, SamplingParams
from gossamer.model.state_dict_adapter import to_checkpoint
from gossamer.model.transformer import Transformer
from gossamer.server import load as loading
from gossamer.text.tokenizer import Tokenizer


def load(model, **options):
    said = []
    return loading.load(str(model), warn=said.append, **options), said


def greedy(loaded, prompt=(1, 2, 3)):
    async def collect():
        params = SamplingParams(max_tokens=8, temperature=0)
        tokens = [t.token_id async for t in loaded.engine.submit(prompt, params)]
        await loaded.engine.close()
        return tokens

    return asyncio.run(collect())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The debug model, saved as a checkpoint with its tokenizer."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    config = presets.load("debug")
    writer = CheckpointWriter(path)
    for name, array, dtype in to_checkpoint(Transformer(config, seed=4)):
        writer.add(name, array, dtype)
    writer.finish()
    hf.write(config, path / "config.json")
    Tokenizer.bytes_only().save(path)
    return path


def test_debug_is_random_and_says_so():
    loaded, said = load("debug", seed=1)
    assert loaded.name == "debug"
    assert len(said) == 1
    assert "random weights" in said[0]
    assert greedy(loaded) == greedy(load("debug", seed=1)[0])
    assert greedy(load("debug", seed=1)[0]) != greedy(load("debug", seed=2)[0])


def test_a_folder_is_served_under_its_name(folder):
    loaded, said = load(folder)
    assert loaded.name == "tiny"
    assert said == []
    assert loaded.config.vocab_size == 320
    assert len(greedy(loaded)) == 8
    assert greedy(load(folder)[0]) == greedy(load(folder)[0])


def test_a_preset_name_wins_over_a_folder_of_that_name(folder, tmp_path, monkeypatch):
    (tmp_path / "debug").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    assert load("debug")[1] != []
    assert load("./debug")[0].name == "tiny"


@pytest.mark.parametrize(
    ("model", "text"),
    [("k3", "has no weights here"), ("no/such/folder", "neither nano nor debug nor a folder")],
)
def test_what_cannot_be_loaded(model, text):
    with pytest.raises(loading.LoadError, match=text):
        load(model)


def test_missing_bundled_weights_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "BUNDLED", tmp_path)
    with pytest.raises(loading.LoadError, match="bundled nano weights are missing"):
        load("nano")


def test_a_tokenizer_that_is_too_large_is_refused(folder, tmp_path):
    for part in folder.iterdir():
        (tmp_path / part.name).symlink_to(part)
    (tmp_path / "tiktoken.model").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    ranks = {bytes((byte,)): byte for byte in range(256)} | {b"ab": 256}
    from gossamer.text import specials

    Tokenizer(ranks, specials=specials.small(257), digits=1, source="test").save(tmp_path)
    with pytest.raises(loading.LoadError, match="the tokenizer has 321 ids, the model only 320"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("threads", 0, "threads must be from 1 to 1024, got 0"),
        ("threads", 10**11, "threads must be from 1 to 1024, got 100000000000"),
        ("max_sequences", 0, "max_sequences must be from 1 to 4096, got 0"),
        ("max_sequences", 10**30, "max_sequences must be from 1 to 4096"),
        ("cache_bytes", 0, "cache_bytes must be at least 1, got 0"),
        ("spill_bytes", 0, "spill_bytes must be at least 1, got 0"),
        ("spill", Path(__file__), "the spill wants a folder, .*test_load.py is none"),
    ],
)
def test_absurd_resources_are_refused(field, value, text):
    with pytest.raises(loading.LoadError, match=text):
        loading.Resources(**{field: value})


@pytest.mark.parametrize("gib", [math.nan, math.inf, -1.0, 0.0, 1e30])
def test_an_absurd_cache_is_refused_by_the_option_s_name(gib):
    with pytest.raises(loading.LoadError, match="--cache-gib must be above 0 and below 1,048,576, got"):
        serve("debug", port=0, cache_gib=gib)


def test_an_absurd_spill_is_refused_by_the_option_s_name(tmp_path):
    with pytest.raises(loading.LoadError, match="--spill-gib must be above 0 and below 1,048,576, got"):
        serve("debug", port=0, spill=tmp_path, spill_gib=0.0)


def cached(model, spill, **options):
    """Tokens of a long prompt that a freshly loaded model found on disk, and what it answered."""
    loaded, _ = load(model, resources=loading.Resources(spill=spill, **options))
    answer = greedy(loaded, tuple(range(1, 200)))
    return loaded.engine.stats.cache_hit_tokens, answer


def test_prefixes_survive_a_restart_of_the_same_model_in_the_same_arithmetic_alone(folder, tmp_path):
    spill = tmp_path / "spill"
    cold, answer = cached(folder, spill)
    assert cold == 0
    assert spill.stat().st_mode & 0o077 == 0
    assert cached(folder, spill) == (192, answer)
    assert cached(folder, spill, state_dtype="bf16")[0] == 0
    assert cached(folder, spill, cache_dtype="fp8")[0] == 0
    assert cached("debug", spill)[0] == 0


def test_weights_that_changed_meet_nothing_on_disk(folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    assert cached(other, tmp_path / "spill")[0] == 0
    (shard,) = other.glob("*.safetensors")
    os.utime(shard, (1, 1))
    assert cached(other, tmp_path / "spill")[0] == 0


def test_every_sequence_that_is_allowed_may_run():
    loaded, _ = load("debug", resources=loading.Resources(max_sequences=700, cache_bytes=1 << 30))
    assert loaded.runner.num_slots == 700
    assert loaded.engine.max_running == 700


def test_resources_decide_what_the_engine_holds():
    loaded, _ = load("debug", resources=loading.Resources(threads=2, cache_bytes=400_000, max_sequences=3))
    stats = loaded.engine.stats
    assert loaded.engine.max_context == 64 * stats.num_blocks < loaded.config.max_context
    assert len(greedy(loaded)) == 8
    with pytest.raises(EngineError, match="1,000 bytes do not hold"):
        load("debug", resources=loading.Resources(cache_bytes=1000))
