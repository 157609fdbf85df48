"""Read and write the published ``config.json`` of this family.

Reading never loses a key: what is understood becomes a `ModelConfig`, the rest stays in
``ModelConfig.extra`` by dotted path and is written back.  Layer lists are 1-based in the file and
0-based here.  ``to_tree(parse(tree)) == tree`` for every tree that parses.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from gossamer.config import fields, layers, writer
from gossamer.config.fields import ABSENT, Field
from gossamer.config.layers import brief
from gossamer.config.model import (
    ConfigError,
    DSAConfig,
    KDAConfig,
    MLAConfig,
    ModelConfig,
    MoEConfig,
    QuantConfig,
    VisionConfig,
)

FILE_NAME = "config.json"
MXFP4_FORMAT = "mxfp4-pack-quantized"
Family = Literal["k3", "k3.1", "kimi-linear"]


def read(path: str | os.PathLike[str]) -> ModelConfig:
    """Read a config.json, or the one inside a checkpoint folder.

    The model is named after the folder that holds the file.

    Raises:
        ConfigError: no such file, not JSON, or not a model of this family.
    """
    file, tree = _load(path)
    try:
        return parse(tree, name=file.resolve().parent.name)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def read_vision(path: str | os.PathLike[str]) -> VisionConfig:
    """Read the vision_config alone, of a file that need not describe a text network.

    Raises:
        ConfigError: no such file, not JSON, or no vision_config.
    """
    file, tree = _load(path)
    try:
        if not isinstance(tree, dict):
            raise ConfigError(f"the root must be an object, got {brief(tree)}")
        vision = _read_vision(_Reader(tree))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if vision is None:
        raise ConfigError(f"{file}: no vision_config")
    return vision


def _load(path: str | os.PathLike[str]) -> tuple[Path, Any]:
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    try:
        text = file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    try:
        return file, json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        body = text.rstrip()
        cut = " (the file ends early)" if error.pos >= len(body) or not body.endswith("}") else ""
        raise ConfigError(f"{file}: not JSON: {error.msg} at line {error.lineno}{cut}") from None
    except RecursionError:
        raise ConfigError(f"{file}: not a model config: nested too deeply") from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    except ValueError as error:
        # Python refuses integers of thousands of digits.
        raise ConfigError(f"{file}: not a model config: {error}") from None


def write(config: ModelConfig, path: str | os.PathLike[str]) -> None:
    """Write ``to_tree(config)`` as JSON to a file, or to config.json in a folder."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    file.write_text(json.dumps(to_tree(config), indent=2) + "\n", encoding="utf-8")


def parse(tree: dict[str, Any], *, name: str) -> ModelConfig:
    """Turn a config.json tree into a `ModelConfig`.

    Args:
        tree: the parsed file; not modified.
        name: what to call the model.

    Raises:
        ConfigError: a missing or wrong value (key and value named), layer lists that overlap or miss
            a layer, or an architecture of another family.
    """
    if not isinstance(tree, dict):
        raise ConfigError(f"a config is a JSON object, got {type(tree).__name__}")
    reader = _Reader(tree)
    text = _open_text(reader, tree)
    if text.get("linear_attn_config") is None:
        raise ConfigError(
            f"architecture {_architecture(tree)} is not of the Kimi-K3/K3.1/Kimi-Linear family: "
            "no linear_attn_config"
        )
    _check_required_values(reader, text)
    plain = reader.values("text", fields.TEXT)
    plain |= reader.values("top", fields.TOKEN_IDS)
    if plain["activation"] not in ("situ", "silu"):
        raise ConfigError(f"hidden_act must be 'situ' or 'silu', got {plain['activation']!r}")
    kda, full = _read_kda(reader, plain["num_layers"])
    mla = MLAConfig(**reader.values("text", fields.MLA, key="mla"))
    moe = MoEConfig(**reader.values("text", fields.MOE, key="moe"))
    dsa = _read_dsa(reader, full, plain["num_layers"])
    quant = _read_quant(reader)
    vision = _read_vision(reader)
    family = _family(tree, plain, dsa)
    own = _read_own(reader, family)
    return ModelConfig(
        name=name,
        family=family,
        full_attention_layers=full,
        kda=replace(kda, l2_norm_eps=own["l2_norm_eps"], a_log_multiple=own["a_log_multiple"]),
        mla=replace(mla, lora_norm_eps=own["lora_norm_eps"]),
        dsa=dsa and replace(dsa, k_norm_eps=own["k_norm_eps"], k_norm_bias=own["k_norm_bias"]),
        moe=moe,
        quant=quant and replace(quant, scale_rule=own["scale_rule"]),
        vision=vision,
        extra=reader.leftovers(),
        spelling=reader.spelling,
        **plain,
    )


def to_tree(config: ModelConfig) -> dict[str, Any]:
    """The config.json tree of a model, keeping the key names of the file it came from."""
    return writer.to_tree(config)


def unknown_keys(config: ModelConfig) -> dict[str, Any]:
    """The kept keys that could mean something this package does not know, by dotted path."""
    return {
        path: value for path, value in config.extra.items() if writer.split(path)[-1] not in fields.HARMLESS
    }


class _Reader:
    """Takes known keys out of a tree, remembering where each stood; what remains is unknown."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.sections: dict[str, dict[str, Any]] = {"top": dict(tree)}
        self.spelling: dict[str, str] = {"top": ""}

    def open(self, section: str, parent: str, key: str) -> dict[str, Any] | None:
        """Move the object at ``parent[key]`` into a section of its own; None when absent or null."""
        holder = self.sections[parent]
        if holder.get(key) is None:
            return None
        path = writer.join(self.spelling[parent], key)
        value = holder.pop(key)
        if not isinstance(value, dict):
            raise ConfigError(f"{path} must be an object, got {brief(value)}")
        self.sections[section] = dict(value)
        self.spelling[section] = path
        return self.sections[section]

    def open_first(self, section: str, parents: tuple[str, ...], key: str) -> dict[str, Any] | None:
        """As `open`, at the first of several places that has the object."""
        for parent in parents:
            opened = self.open(section, parent, key)
            if opened is not None:
                return opened
        return None

    def values(self, section: str, table: tuple[Field, ...], *, key: str | None = None) -> dict[str, Any]:
        """The values of one table by attribute, taken out of the section."""
        return {field.attribute: self.take(section, field, key=key) for field in table}

    def take(self, section: str, field: Field, *, key: str | None = None) -> Any:
        """One value, checked; the default when no accepted name is there."""
        holder = self.sections[section]
        found = next((name for name in field.names if name in holder), None)
        if found is None:
            if field.default is ABSENT:
                where = self.spelling[section] or "the config"
                raise ConfigError(f"{where} has no {' or '.join(field.names)}")
            return field.default
        path = writer.join(self.spelling[section], found)
        self.spelling[f"{key or section}.{field.attribute}"] = path
        return check(holder.pop(found), field.kind, path)

    def take_list(self, section: str, names: tuple[str, ...], key: str) -> tuple[int, ...] | None:
        """A list of integers under the first of several names, or None."""
        holder = self.sections[section]
        found = next((name for name in names if holder.get(name) is not None), None)
        if found is None:
            return None
        path = writer.join(self.spelling[section], found)
        self.spelling[key] = path
        return layers.check_list(holder.pop(found), path)

    def leftovers(self) -> dict[str, Any]:
        """Every key nobody took, by dotted path."""
        return {
            writer.join(self.spelling[section], key): value
            for section, holder in self.sections.items()
            if section != "text" or self.spelling["text"]
            for key, value in holder.items()
        }


def check(value: Any, kind: str, path: str) -> Any:
    """A value of one of the kinds of `Field`, or a ConfigError naming key and value."""
    if value is None and kind.endswith("?"):
        return None
    base = kind.rstrip("?")
    integer = isinstance(value, int) and not isinstance(value, bool)
    if base == "int" and integer and value >= 1:
        return value
    if base == "count" and integer and value >= 0:
        return value
    if base == "float" and (integer or isinstance(value, float)) and abs(value) <= sys.float_info.max:
        return float(value)
    if base == "bool" and isinstance(value, bool):
        return value
    if base == "str" and isinstance(value, str):
        return value
    if base == "pair" and isinstance(value, list | tuple) and len(value) == 2:
        return tuple(check(item, "int", path) for item in value)
    raise ConfigError(
        f"{path} must be {_KIND_NAMES[base]}{' or null' if kind[-1] == '?' else ''}, got {brief(value)}"
    )


_KIND_NAMES = {
    "int": "a positive integer",
    "count": "an integer of at least 0",
    "float": "a finite number",
    "bool": "true or false",
    "str": "a string",
    "pair": "a list of two positive integers",
}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ConfigError(f"the key {twice!r} stands twice in one object")
    return tree


def _refuse_constant(text: str) -> NoReturn:
    raise ConfigError(f"{text} is not a JSON number")


def _open_text(reader: _Reader, tree: dict[str, Any]) -> dict[str, Any]:
    text = reader.open("text", "top", "text_config")
    if text is None:
        # A text-only file: the root is the text config, one and the same object.
        text = reader.sections["text"] = reader.sections["top"]
        reader.spelling["text"] = ""
    return text


def _architecture(tree: dict[str, Any]) -> str:
    names = tree.get("architectures")
    if isinstance(names, list) and names:
        return str(names[0])
    return str(tree.get("model_type", "unnamed"))


def _check_required_values(reader: _Reader, text: dict[str, Any]) -> None:
    for key, wanted in fields.REQUIRED_VALUES.items():
        if key in text and text[key] != wanted:
            path = writer.join(reader.spelling["text"], key)
            raise ConfigError(f"{path} is {brief(text[key])}; only {wanted!r} is implemented")


def _family(tree: dict[str, Any], plain: dict[str, Any], dsa: DSAConfig | None) -> Family:
    if dsa is not None:
        return "k3.1"
    if "K31" in _architecture(tree):
        raise ConfigError(
            f"architecture {_architecture(tree)} has an indexer, but the file has no dsa_config object"
        )
    return "k3" if plain["attn_res_block_size"] else "kimi-linear"


def _read_kda(reader: _Reader, num_layers: int) -> tuple[KDAConfig, tuple[int, ...]]:
    reader.open("kda", "text", "linear_attn_config")
    values = reader.values("kda", fields.KDA)
    full = reader.take_list("kda", ("full_attn_layers",), "kda.full_layers")
    linear = reader.take_list("kda", ("kda_layers",), "kda.kda_layers")
    where = reader.spelling["kda"]
    return KDAConfig(**values), layers.full_attention(full, linear, num_layers, where)


def _read_dsa(reader: _Reader, full: tuple[int, ...], num_layers: int) -> DSAConfig | None:
    opened = reader.open_first("dsa", ("text", "top"), "dsa_config")
    flat = "index_topk" in reader.sections["text"]
    if opened is None and not flat:
        return None
    table, layer_names = fields.DSA, fields.DSA_LAYERS
    if opened is None:
        # Keys written beside the others: only names that say "index" can be the indexer's.
        reader.sections["dsa"] = reader.sections["text"]
        reader.spelling["dsa"] = reader.spelling["text"]
        table = tuple(replace(f, names=tuple(n for n in f.names if "index" in n)) for f in table)
        layer_names = tuple(n for n in layer_names if "index" in n)
    else:
        table = tuple(_guess_name(field, opened) for field in table)
    values = reader.values("dsa", table)
    listed = reader.take_list("dsa", layer_names, "dsa.layers")
    if opened is None:
        del reader.sections["dsa"], reader.spelling["dsa"]
    where = reader.spelling.get("dsa.layers", "")
    chosen = full if listed is None else layers.to_zero_based(listed, num_layers, where)
    return DSAConfig(layers=chosen, **values)


def _guess_name(field: Field, found: dict[str, Any]) -> Field:
    """Add the one key of ``found`` whose name can only mean this field, when no known name is there.

    The key names of the released K3.1 file are unknown; the three numbers are told apart by the
    words every such name has used so far.
    """
    if any(name in found for name in field.names):
        return field
    numbers = [key for key, value in found.items() if isinstance(value, int) and not isinstance(value, bool)]
    width = [
        key for key in numbers if ("dim" in key or "size" in key or "length" in key) and "rope" not in key
    ]
    matches = {
        "num_heads": [key for key in numbers if "head" in key and key not in width and "rope" not in key],
        "head_dim": width,
        "top_k": [key for key in numbers if "top" in key],
    }[field.attribute]
    if len(matches) != 1:
        raise ConfigError(
            f"dsa_config has no key for the indexer's {field.attribute}: "
            f"looked for {', '.join(field.names)}, found {', '.join(sorted(found)) or 'nothing'}"
        )
    return replace(field, names=(matches[0],))


def _read_quant(reader: _Reader) -> QuantConfig | None:
    found = reader.open_first("quant", ("text", "top"), "quantization_config")
    if found is None:
        return None
    where = reader.spelling["quant"]
    if found.get("format") != MXFP4_FORMAT:
        raise ConfigError(
            f"{where}.format is {brief(found.get('format'))}; only {MXFP4_FORMAT!r} experts are implemented"
        )
    size = _group_size(found)
    if size != 32:
        raise ConfigError(
            f"{where}: group_size of the weights is {brief(size)}, but MXFP4 blocks hold 32 values"
        )
    ignore = found.pop("ignore", None)
    if ignore is None:
        return QuantConfig()
    if not isinstance(ignore, list) or not all(isinstance(item, str) for item in ignore):
        raise ConfigError(f"{where}.ignore must be a list of strings, got {brief(ignore)}")
    reader.spelling["quant.ignore"] = writer.join(where, "ignore")
    return QuantConfig(ignore=tuple(ignore))


def _group_size(found: dict[str, Any]) -> Any:
    groups = found.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and "group_size" in weights:
            return weights["group_size"]
    return 32


def _read_vision(reader: _Reader) -> VisionConfig | None:
    if reader.open("vision", "top", "vision_config") is None:
        return None
    return VisionConfig(**reader.values("vision", fields.VISION))


def _read_own(reader: _Reader, family: Family) -> dict[str, Any]:
    """The values of the "gossamer" object, with defaults when a file has none."""
    if reader.open("own", "top", "gossamer") is None:
        values = {field.attribute: field.default for field in fields.OWN}
    else:
        values = reader.values("own", fields.OWN)
    if values["scale_rule"] not in ("floor", "even", "rceil"):
        raise ConfigError(f"gossamer.scale_rule must be floor, even or rceil, got {values['scale_rule']!r}")
    if values["a_log_multiple"] is None:
        values["a_log_multiple"] = writer.default_a_log_multiple(cast(str, family))
    return values
