"""The config.json reader: tolerant of what it does not know, strict about what it uses."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.config import hf, presets
from gossamer.config.model import ConfigError

SECTIONS = ((), ("text_config",), ("text_config", "linear_attn_config"), ("text_config", "dsa_config"))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def raw(name: str) -> dict:
    return json.loads((presets.FOLDER / f"{name}.json").read_text())


def at(tree: dict, path: tuple[str, ...]) -> dict:
    for key in path:
        tree = tree[key]
    return tree


def pro() -> dict:
    return raw("k3.1-pro")


@pytest.mark.parametrize("name", presets.NAMES)
def test_presets_round_trip_and_hold_nothing_unknown(name):
    config = presets.load(name)
    assert hf.to_tree(config) == raw(name)
    assert hf.unknown_keys(config) == {}
    assert config.name == name


@pytest.mark.parametrize("name", presets.NAMES)
def test_a_config_built_in_code_reads_back_equal(name):
    bare = replace(presets.load(name), extra={}, spelling={})
    again = hf.parse(hf.to_tree(bare), name=name)
    assert replace(again, extra={}) == bare


def test_layer_lists_become_zero_based():
    config = presets.load("k3")
    assert config.full_attention_layers == (*range(3, 92, 4), 92)
    assert config.layer_types.count("kda") == 69
    assert [i for i in range(93) if not config.is_moe_layer(i)] == [0]
    assert presets.load("nano").full_attention_layers == (3, 6, 7)


@given(
    name=st.sampled_from(presets.NAMES),
    section=st.sampled_from(SECTIONS),
    extra=st.dictionaries(st.text(min_size=1).map("x_".__add__), JSON_VALUES, max_size=4),
)
def test_unknown_keys_survive_anywhere(name, section, extra):
    tree = raw(name)
    if not all(key in tree for key in section[:1]):
        section = ()
    holder = at(tree, section) if all(k in tree.get("text_config", {}) for k in section[1:]) else tree
    holder.update(extra)
    config = hf.parse(tree, name=name)
    assert hf.to_tree(config) == tree
    assert len(hf.unknown_keys(config)) == len(extra)


@given(
    drop=st.sets(
        st.sampled_from(
            [
                "rms_norm_eps",
                "initializer_range",
                "num_nextn_predict_layers",
                "moe_layer_freq",
                "num_expert_group",
                "topk_group",
                "use_cache",
                "topk_method",
                "routed_scaling_factor",
            ]
        )
    )
)
def test_missing_optional_keys_stay_missing(drop):
    tree = pro()
    for key in drop:
        del tree["text_config"][key]
    assert hf.to_tree(hf.parse(tree, name="x")) == tree


def test_a_changed_value_is_written_under_the_key_of_the_file():
    tree = pro()
    dsa = tree["text_config"]["dsa_config"]
    dsa["n_heads"] = dsa.pop("index_n_heads")
    config = hf.parse(tree, name="x")
    assert config.dsa
    changed = hf.to_tree(replace(config, dsa=replace(config.dsa, num_heads=8)))
    assert changed["text_config"]["dsa_config"]["n_heads"] == 8
    assert "index_n_heads" not in changed["text_config"]["dsa_config"]


def test_removed_parts_leave_no_trace():
    config = presets.load("k3.1-pro")
    tree = hf.to_tree(replace(config, vision=None, dsa=None, quant=None))
    assert "vision_config" not in tree
    assert "dsa_config" not in tree["text_config"]
    assert "quantization_config" not in tree["text_config"]


@pytest.mark.parametrize(
    "names",
    [
        ("n_heads", "head_dim", "topk", "dsa_layers"),
        ("num_heads", "head_dim", "top_k", "layers"),
        ("indexer_head_count", "indexer_key_length", "indexer_topk_tokens", None),
        ("index_n_heads", "index_head_dim", "index_topk", None),
    ],
)
@pytest.mark.parametrize("place", ["text", "root"])
def test_indexer_keys_under_other_names(names, place):
    tree = pro()
    listed = tree["text_config"].pop("dsa_config")["layers"]
    heads, width, top_k, layers = names
    dsa = {heads: 32, width: 128, top_k: 2048} | ({layers: listed} if layers else {})
    (tree["text_config"] if place == "text" else tree)["dsa_config"] = dsa
    config = hf.parse(tree, name="k3.1-pro")
    assert config.dsa == presets.load("k3.1-pro").dsa
    assert config.family == "k3.1"
    assert hf.to_tree(config) == tree


def test_indexer_keys_beside_the_others():
    tree = pro()
    del tree["text_config"]["dsa_config"]
    tree["text_config"] |= {"index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048}
    config = hf.parse(tree, name="k3.1-pro")
    assert config.dsa == presets.load("k3.1-pro").dsa
    assert hf.to_tree(config) == tree
    assert hf.unknown_keys(config) == {}


def test_an_indexer_that_cannot_be_read_is_an_error_with_the_names_found():
    tree = pro()
    tree["text_config"]["dsa_config"] = {"alpha": 32, "beta": 128}
    with pytest.raises(ConfigError, match=r"num_heads.*looked for index_n_heads.*found alpha, beta"):
        hf.parse(tree, name="x")
    del tree["text_config"]["dsa_config"]
    with pytest.raises(ConfigError, match="KimiK31ForConditionalGeneration has an indexer"):
        hf.parse(tree, name="x")


def test_text_only_file_and_lifted_quantization():
    tree = raw("k3")
    text = tree["text_config"]
    lifted = {**text, "architectures": ["KimiLinearForCausalLM"]}
    config = hf.parse(lifted, name="text")
    assert config.family == "k3"
    assert config.vision is None
    assert hf.to_tree(config) == lifted
    tree["quantization_config"] = text.pop("quantization_config")
    config = hf.parse(tree, name="lifted")
    assert config.quant == presets.load("k3").quant
    assert hf.to_tree(config) == tree


@pytest.mark.parametrize("gone", ["vision_config", "quantization_config"])
@pytest.mark.parametrize("how", ["absent", "null"])
def test_optional_objects_may_be_absent_or_null(gone, how):
    tree = raw("k3")
    holder = tree if gone in tree else tree["text_config"]
    if how == "null":
        holder[gone] = None
    else:
        del holder[gone]
    config = hf.parse(tree, name="x")
    assert (config.vision is None) == (gone == "vision_config")
    assert (config.quant is None) == (gone == "quantization_config")
    assert hf.to_tree(config) == tree
    assert hf.unknown_keys(config) == {}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("text_config", "hidden_size"),
            "7168",
            r"text_config\.hidden_size must be a positive integer, got '7168'",
        ),
        (("text_config", "hidden_size"), 7168.0, "got 7168.0"),
        (("text_config", "hidden_size"), True, "got True"),
        (("text_config", "hidden_size"), 0, "got 0"),
        (
            ("text_config", "num_hidden_layers"),
            None,
            "num_hidden_layers must be a positive integer, got None",
        ),
        (("text_config", "rms_norm_eps"), "1e-5", "must be a finite number"),
        (("text_config", "rms_norm_eps"), 10**400, r"must be a finite number, got 1000.*\.\.\."),
        (("text_config", "rms_norm_eps"), float("inf"), "must be a finite number, got inf"),
        (("text_config", "latent_moe_use_norm"), 1, "must be true or false, got 1"),
        (("text_config", "hidden_act"), "gelu", "hidden_act must be 'situ' or 'silu', got 'gelu'"),
        (("text_config", "linear_attn_config"), [], r"linear_attn_config must be an object, got \[\]"),
        (("text_config", "linear_attn_config", "kda_layers"), "1,2", "must be a list of layer numbers"),
        (("text_config", "linear_attn_config", "full_attn_layers"), [4, "8"], "must hold integers, got '8'"),
        (
            ("text_config", "linear_attn_config", "full_attn_layers"),
            [0, 4],
            r"names layer 0; layers are numbered 1\.\.93",
        ),
        (("text_config", "linear_attn_config", "full_attn_layers"), [4, 4], "names layer 4 twice"),
        (("text_config", "dsa_config", "layers"), [1], r"dsa layers \[0\] are not full-attention"),
        (("text_config", "num_experts_per_token"), 897, r"experts_per_token must be in 1\.\.896"),
        (("text_config", "moe_router_activation_func"), "softmax", "only 'sigmoid' is implemented"),
        (("text_config", "mla_use_nope"), False, "mla_use_nope is False"),
        (("text_config", "moe_intermediate_size"), 3000, "not a multiple of the MXFP4 block"),
        (
            ("text_config", "quantization_config", "format"),
            "nvfp4-pack-quantized",
            "only 'mxfp4-pack-quantized'",
        ),
        (("text_config", "quantization_config", "ignore"), [1], r"ignore must be a list of strings"),
        (("vision_config", "merge_kernel_size"), [2], "merge_kernel_size must be a list of two"),
        (("eos_token_id",), -1, "eos_token_id must be an integer of at least 0 or null, got -1"),
    ],
)
def test_wrong_values_are_named(path, value, message):
    tree = pro()
    at(tree, path[:-1])[path[-1]] = value
    with pytest.raises(ConfigError, match=message):
        hf.parse(tree, name="x")


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "kv_lora_rank", "num_experts", "hidden_act"]
)
def test_missing_required_keys_are_named(key):
    tree = pro()
    del tree["text_config"][key]
    with pytest.raises(ConfigError, match=f"text_config has no {key}"):
        hf.parse(tree, name="x")


@pytest.mark.parametrize("key", ["dsa_config", "quantization_config", "linear_attn_config"])
def test_an_empty_object_is_not_an_absent_one(key):
    tree = pro()
    tree["text_config"][key] = {}
    with pytest.raises(ConfigError):
        hf.parse(tree, name="x")


def test_layer_lists_must_cover_each_layer_once():
    tree = pro()
    lists = tree["text_config"]["linear_attn_config"]
    lists["kda_layers"].append(4)
    with pytest.raises(ConfigError, match=r"layers \[4\] stand in both"):
        hf.parse(tree, name="x")
    lists["kda_layers"].remove(4)
    lists["kda_layers"].remove(5)
    with pytest.raises(ConfigError, match=r"layers \[5\] stand in neither"):
        hf.parse(tree, name="x")


@pytest.mark.parametrize("gone", ["kda_layers", "full_attn_layers"])
def test_one_layer_list_is_enough(gone):
    tree = pro()
    del tree["text_config"]["linear_attn_config"][gone]
    config = hf.parse(tree, name="x")
    assert config.full_attention_layers == presets.load("k3").full_attention_layers
    assert hf.to_tree(config) == tree


def test_no_layer_list_is_an_error():
    tree = pro()
    for key in ("kda_layers", "full_attn_layers"):
        del tree["text_config"]["linear_attn_config"][key]
    with pytest.raises(ConfigError, match="neither full_attn_layers nor kda_layers"):
        hf.parse(tree, name="x")


def test_another_architecture_is_refused_by_name():
    with pytest.raises(ConfigError, match="DeepseekV3ForCausalLM is not of the Kimi"):
        hf.parse({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168}, name="x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not JSON: .* \(the file ends early\)"),
        (b'{"text_config": {', r"the file ends early"),
        (b'{"a": 1,}', "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[1, 2]", "a config is a JSON object, got list"),
        (b'{"hidden_size": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not a model config: Exceeds the limit"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_damaged_files_are_one_error_naming_the_file(tmp_path, data, message):
    file = tmp_path / "config.json"
    file.write_bytes(data)
    for path in (file, tmp_path):
        with pytest.raises(ConfigError, match=message) as caught:
            hf.read(path)
        assert str(file) in str(caught.value)


@pytest.mark.parametrize("cut", range(0, 2800, 97))
def test_every_truncation_is_a_config_error(tmp_path, cut):
    data = (presets.FOLDER / "debug.json").read_bytes()
    (tmp_path / "config.json").write_bytes(data[: min(cut, len(data) - 3)])
    with pytest.raises(ConfigError, match="ends early"):
        hf.read(tmp_path)


def test_read_names_the_model_after_its_folder_and_write_reads_back(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = presets.load("debug")
    hf.write(config, folder)
    assert hf.read(folder) == replace(config, name="my-model")
    with pytest.raises(ConfigError, match="no such file"):
        hf.read(tmp_path / "absent")


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"no preset 'k4'; there are k3\.1-pro"):
        presets.load("k4")


def test_parsing_leaves_the_tree_alone():
    tree = pro()
    before = copy.deepcopy(tree)
    hf.parse(tree, name="x")
    assert tree == before


def test_a_null_section_is_as_good_as_none():
    tree = raw("debug")
    at(tree, ("text_config",))["linear_attn_config"] = None
    with pytest.raises(ConfigError, match="no linear_attn_config"):
        hf.parse(tree, name="x")


@given(path=st.sampled_from(SECTIONS), value=JSON_VALUES, data=st.data())
def test_any_replaced_value_parses_or_is_a_config_error(path, value, data):
    tree = raw("debug")
    holder = at(tree, path)
    key = data.draw(st.sampled_from(sorted(holder)))
    holder[key] = value
    try:
        config = hf.parse(tree, name="x")
    except ConfigError:
        return
    assert hf.to_tree(config) == tree
