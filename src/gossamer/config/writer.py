"""The way back: a `ModelConfig` as a ``config.json`` tree.

A dotted path names a place in the tree; "." and "~" inside a key are escaped as "~1" and "~0".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gossamer.config import fields, layers
from gossamer.config.fields import Field
from gossamer.config.model import ModelConfig

ARCHITECTURES = {
    "k3": "KimiK3ForConditionalGeneration",
    "k3.1": "KimiK31ForConditionalGeneration",
    "kimi-linear": "KimiLinearForCausalLM",
}
TEXT_ARCHITECTURE = "KimiLinearForCausalLM"
TEXT_MODEL_TYPE = "kimi_linear"


def join(base: str, key: str) -> str:
    """The path of ``key`` inside the object at ``base`` ("" is the root)."""
    part = key.replace("~", "~0").replace(".", "~1")
    return f"{base}.{part}" if base else part


def split(path: str) -> list[str]:
    """The keys of a path, from the root down."""
    return [part.replace("~1", ".").replace("~0", "~") for part in path.split(".")]


def default_a_log_multiple(family: str) -> int:
    """Padding of A_log when a file says nothing: K3 pads to 128, Kimi-Linear does not pad."""
    return 1 if family == "kimi-linear" else 128


def to_tree(config: ModelConfig) -> dict[str, Any]:
    """See `gossamer.config.hf.to_tree`."""
    tree: dict[str, Any] = {}
    bases = _bases(config)
    for base in _present(config, bases):
        _object_at(tree, base)
    for key, section, name, value, default in _entries(config):
        path = config.spelling.get(key)
        if path is None:
            # Absent from the file it came from and still at that meaning: leave it out again.  A
            # config built in code states everything but nulls and our own defaults.
            quiet = bool(config.spelling) or value is None or section == "own"
            if quiet and value == default:
                continue
            path = join(bases[section], name)
        _put(tree, path, value)
    if not config.spelling:
        _add_constants(tree, config, bases)
    gone = _gone(config, bases)
    for path, value in config.extra.items():
        if not any(path == base or path.startswith(base + ".") for base in gone):
            _put(tree, path, value)
    return tree


def _bases(config: ModelConfig) -> dict[str, str]:
    """The path of the object that holds each section."""
    known = config.spelling
    text = known.get("text", "" if config.family == "kimi-linear" else "text_config")
    return {
        "top": "",
        "text": text,
        "mla": text,
        "moe": text,
        "kda": known.get("kda", join(text, "linear_attn_config")),
        "dsa": known.get("dsa", text if "dsa.top_k" in known else join(text, "dsa_config")),
        "quant": known.get("quant", join(text, "quantization_config")),
        "vision": known.get("vision", "vision_config"),
        "own": known.get("own", "gossamer"),
    }


def _present(config: ModelConfig, bases: dict[str, str]) -> list[str]:
    """Objects that stood in the file, even if nothing in them is understood."""
    gone = _gone(config, bases)
    return [
        bases[s]
        for s in ("text", "kda", "dsa", "quant", "vision", "own")
        if s in config.spelling and bases[s] not in gone
    ]


def _gone(config: ModelConfig, bases: dict[str, str]) -> list[str]:
    """Objects of the file whose part has since been taken out of the config."""
    parts = {"dsa": config.dsa, "quant": config.quant, "vision": config.vision}
    return [bases[section] for section, part in parts.items() if part is None and section in config.spelling]


def _entries(config: ModelConfig) -> Iterator[tuple[str, str, str, Any, Any]]:
    """(spelling key, section, name to write, value, meaning when absent) of everything understood."""
    tables: list[tuple[str, Any, tuple[Field, ...]]] = [
        ("top", config, fields.TOKEN_IDS),
        ("text", config, fields.TEXT),
        ("mla", config.mla, fields.MLA),
        ("moe", config.moe, fields.MOE),
        ("kda", config.kda, fields.KDA),
        ("dsa", config.dsa, fields.DSA),
        ("vision", config.vision, fields.VISION),
    ]
    for section, part, table in tables:
        if part is None:
            continue
        for field in table:
            value = getattr(part, field.attribute)
            value = list(value) if isinstance(value, tuple) else value
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            yield f"{section}.{field.attribute}", section, _name(config, field), value, default
    yield from _layer_entries(config)
    if config.quant is not None and config.quant.expert_format == "mxfp4":
        yield "quant.ignore", "quant", "ignore", list(config.quant.ignore), []
    yield from _own_entries(config)


def _name(config: ModelConfig, field: Field) -> str:
    # Kimi-Linear's file says model_max_length; K3's says max_position_embeddings.
    if field.attribute == "max_context" and config.family == "kimi-linear":
        return "model_max_length"
    return field.names[0]


def _layer_entries(config: ModelConfig) -> Iterator[tuple[str, str, str, Any, Any]]:
    full = config.full_attention_layers
    linear = layers.to_one_based(layers.complement(full, config.num_layers))
    known = config.spelling
    # A file may give one of the two lists; the other then goes without saying.
    yield "kda.kda_layers", "kda", "kda_layers", linear, linear if known else None
    yield (
        "kda.full_layers",
        "kda",
        "full_attn_layers",
        layers.to_one_based(full),
        (layers.to_one_based(full) if "kda.kda_layers" in known else None),
    )
    if config.dsa is not None:
        implied = layers.to_one_based(full) if known else None
        yield "dsa.layers", "dsa", "layers", layers.to_one_based(config.dsa.layers), implied


def _own_entries(config: ModelConfig) -> Iterator[tuple[str, str, str, Any, Any]]:
    values: dict[str, Any] = {
        "lora_norm_eps": config.mla.lora_norm_eps,
        "l2_norm_eps": config.kda.l2_norm_eps,
        "a_log_multiple": config.kda.a_log_multiple,
    }
    if config.dsa is not None:
        values |= {"k_norm_eps": config.dsa.k_norm_eps, "k_norm_bias": config.dsa.k_norm_bias}
    if config.quant is not None:
        values["scale_rule"] = config.quant.scale_rule
    defaults = {field.attribute: field.default for field in fields.OWN}
    defaults["a_log_multiple"] = default_a_log_multiple(config.family)
    for name, value in values.items():
        yield f"own.{name}", "own", name, value, defaults[name]


def _add_constants(tree: dict[str, Any], config: ModelConfig, bases: dict[str, str]) -> None:
    """What other readers of a config.json built in code expect to find."""
    root = {"architectures": [ARCHITECTURES[config.family]], "dtype": "bfloat16"}
    if config.family == "k3":
        root["model_type"] = "kimi_k3"
    text = _object_at(tree, bases["text"])
    inner = {
        "architectures": [TEXT_ARCHITECTURE],
        "model_type": TEXT_MODEL_TYPE,
        "num_key_value_heads": config.mla.num_heads,
        "use_grouped_topk": True,
        **fields.REQUIRED_VALUES,
    }
    text.update({key: value for key, value in inner.items() if key not in text})
    tree.update({key: value for key, value in root.items() if key not in tree})
    if config.quant is not None and config.quant.expert_format == "mxfp4":
        quant = _object_at(tree, bases["quant"])
        quant.update(_quantization(config.quant.group_size))


def _quantization(group_size: int) -> dict[str, Any]:
    """The compressed-tensors declaration of weight-only MXFP4."""
    weights = {
        "num_bits": 4,
        "type": "float",
        "symmetric": True,
        "strategy": "group",
        "group_size": group_size,
        "dynamic": False,
        "observer": "minmax",
        "scale_dtype": "torch.uint8",
        "actorder": None,
    }
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": None,
        "output_activations": None,
        "format": "mxfp4-pack-quantized",
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "mxfp4-pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "kv_cache_scheme": None,
    }


def _object_at(tree: dict[str, Any], path: str) -> dict[str, Any]:
    """The object at a path, made where it is missing."""
    for key in split(path) if path else []:
        tree = tree.setdefault(key, {})
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, key = split(path)
    for parent in parents:
        tree = tree.setdefault(parent, {})
    tree[key] = value
