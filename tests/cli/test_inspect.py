"""`gossamer inspect` on presets and on folders that are whole, damaged or strange."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gossamer.checkpoint import CheckpointWriter
from gossamer.cli.main import run
from gossamer.config import count, hf, presets
from gossamer.records import envelope, registry
from gossamer.records.inventory import Inventory

STORED = {"BF16": np.uint16, "F32": np.float32, "U8": np.uint8}


def inspect_json(capsys, *words: str, code: int = 0) -> Inventory:
    assert run(["inspect", *words, "--json"]) == code
    return envelope.decode(capsys.readouterr().out, Inventory)


def write_folder(folder, config, *, change=lambda specs: specs):
    """A checkpoint of zeros with exactly the tensors of a config, after `change`."""
    folder.mkdir(parents=True, exist_ok=True)
    hf.write(config, folder)
    writer = CheckpointWriter(folder, shard_bytes=100_000)
    for spec in change(list(count.tensors(config))):
        writer.add(spec.name, np.zeros(spec.shape, STORED[spec.dtype]), spec.dtype)
    writer.finish()
    return folder


def test_k3_golden(capsys):
    found = inspect_json(capsys, "k3")
    assert found.num_tensors == 497_220
    assert found.num_parameters == 2_779_931_837_184
    assert round(found.num_active_parameters / 1e9, 2) == 104.19
    assert round(found.num_vision_parameters / 1e6, 1) == 401.2
    assert round(found.num_bytes / 1e12, 4) == 1.5609
    assert found.latent_bytes_per_token["bf16"] == 27_648
    assert found.state_bytes_per_sequence["f32"] == 449_372_160
    assert found.basis["num_tensors"] == "exact"
    assert found.tensors is None


def test_k3_pro_golden(capsys):
    found = inspect_json(capsys, "k3.1-pro")
    assert found.num_tensors is None
    assert (found.num_tensors_low, found.num_tensors_high) == (497_316, 497_340)
    assert found.basis["num_tensors"] == "unsettled"
    assert found.unsettled_tensors == ("language_model.model.layers.{layer}.self_attn.indexer.k_norm.bias",)
    assert round(found.num_parameters / 1e9, 2) == 2780.11
    assert round(found.num_active_parameters / 1e9, 2) == 104.37
    assert round(found.num_bytes / 1e12, 4) == 1.5612
    assert found.cache_bytes_per_token_bf16 == 27_648 + 6_144


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("k3", ["497,220", "2,779,931,837,184", "104.19 B", "401.2 M", "1.5609 TB", "27,648", "449,372,160"]),
        ("k3.1-pro", ["497,316-497,340", "2,780.11 B", "104.37 B", "1.5612 TB", "6,144", "unsettled"]),
        ("kimi-linear-48b", ["20,493", "49,122,681,728", "3.11 B"]),
    ],
)
def test_text_shows_the_figures_and_how_they_were_come_by(name, figures, capsys):
    assert run(["inspect", name]) == 0
    out = capsys.readouterr().out
    for figure in (*figures, "exact", "estimated"):
        assert figure in out


def test_the_example_record_is_what_the_command_prints(capsys):
    assert run(["inspect", "debug", "--json"]) == 0
    assert capsys.readouterr().out.encode() == registry.example("inventory")


def test_context_changes_only_the_flops(capsys):
    short, long = (inspect_json(capsys, "nano", "--context", text) for text in ("64", "4096"))
    assert short.flops_per_token.context == 64
    assert short.flops_per_token.total < long.flops_per_token.total
    assert short.num_bytes == long.num_bytes


@pytest.mark.parametrize("name", ["nano", "debug"])
def test_a_written_checkpoint_is_the_count(name, tmp_path, capsys):
    config = presets.load(name)
    folder = write_folder(tmp_path / "model", config)
    found = inspect_json(capsys, str(folder))
    assert found.source == "folder"
    assert found.name == "model"
    assert found.comparison
    assert found.comparison.is_complete
    assert found.comparison.num_tensors == found.num_tensors == count.summary(config).num_tensors_high
    assert found.comparison.num_bytes == found.num_bytes
    assert found.comparison.num_files > 1
    assert found.basis["comparison"] == "measured"


def test_missing_extra_and_misshapen_tensors_are_reported_with_exit_1(tmp_path, capsys):
    def change(specs):
        specs = [replace(s, shape=(7,)) if s.name.endswith("model.norm.weight") else s for s in specs]
        gone = [s for s in specs if not s.name.endswith("layers.2.self_attn.q_a_proj.weight")]
        return [*gone, replace(specs[0], name="left.over", shape=(2, 2))]

    folder = write_folder(tmp_path / "bad", presets.load("debug"), change=change)
    result = inspect_json(capsys, str(folder), code=1).comparison
    assert result
    assert not result.is_complete
    assert result.missing == ("language_model.model.layers.2.self_attn.q_a_proj.weight",)
    assert result.extra == ("left.over",)
    assert [(d.name, d.expected, d.found) for d in result.differing] == [
        ("language_model.model.norm.weight", "shape [64]", "shape [7]")
    ]
    assert run(["inspect", str(folder)]) == 1
    out = capsys.readouterr().out
    for text in (
        "NOT COMPLETE",
        "missing: language_model",
        "extra: left.over",
        "expected shape [64], found shape [7]",
    ):
        assert text in out


def test_long_lists_are_cut_but_counted(tmp_path, capsys):
    folder = write_folder(tmp_path / "half", presets.load("debug"), change=lambda specs: specs[:100])
    result = inspect_json(capsys, str(folder), code=1).comparison
    assert result
    assert result.num_missing == 230
    assert len(result.missing) == 20
    assert run(["inspect", str(folder)]) == 1
    assert "missing: 210 more" in capsys.readouterr().out


def test_unpacked_experts_are_recognised_by_their_names(tmp_path, capsys):
    config = presets.load("debug")
    folder = write_folder(tmp_path / "plain", replace(config, quant=None))
    hf.write(config, folder)
    found = inspect_json(capsys, str(folder))
    assert found.comparison
    assert found.comparison.is_complete
    assert found.num_packed_bytes == 0


def test_a_preset_wins_over_a_folder_and_dot_slash_is_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nano").mkdir()
    hf.write(presets.load("debug"), tmp_path / "nano")
    assert inspect_json(capsys, "nano").source == "preset"
    found = inspect_json(capsys, "./nano")
    assert found.source == "folder"
    assert found.num_layers == 5


def test_a_folder_without_weights_is_only_counted(tmp_path, capsys):
    hf.write(presets.load("debug"), tmp_path)
    found = inspect_json(capsys, str(tmp_path / "config.json"))
    assert found.comparison is None
    assert inspect_json(capsys, str(tmp_path)).comparison is None


def test_unknown_config_keys_are_reported(tmp_path, capsys):
    tree = hf.to_tree(presets.load("debug"))
    tree["text_config"]["new_mechanism"] = {"a": 1}
    (tmp_path / "config.json").write_text(json.dumps(tree))
    assert inspect_json(capsys, str(tmp_path)).unknown_config_keys == ("text_config.new_mechanism",)
    assert run(["inspect", str(tmp_path)]) == 0
    assert "text_config.new_mechanism" in capsys.readouterr().out


def test_tensor_list(capsys):
    found = inspect_json(capsys, "debug", "--tensors")
    assert found.tensors
    assert [t.name for t in found.tensors] == [s.name for s in count.tensors(presets.load("debug"))]
    assert run(["inspect", "debug", "--tensors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "language_model.model.norm.weight  BF16  [64]" in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["k4"], "'k4' is neither a preset (k3.1-pro, k3, kimi-linear-48b, nano, debug) nor a folder"),
        ([], "inspect needs a preset"),
        (["k3", "--context", "0"], "--context must be at least 1, got 0"),
        (["."], "config.json: no such file"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", *words]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_damaged_shard_is_one_line_naming_it(tmp_path, capsys):
    folder = write_folder(tmp_path / "cut", presets.load("debug"))
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-10])
    assert run(["inspect", str(folder)]) == 1
    err = capsys.readouterr().err
    assert shard.name in err
    assert err.count("\n") == 1
