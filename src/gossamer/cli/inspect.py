"""`gossamer inspect`: a model's sizes from its config, and a folder's tensors against them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.tables import inventory_lines
from gossamer.config import count, hf, presets
from gossamer.config.model import ConfigError, ModelConfig
from gossamer.records import inventory as records

if TYPE_CHECKING:
    from gossamer.records.inventory import Comparison, Inventory

MAX_LISTED = 20
"""Missing, extra and differing tensors listed before the rest is only counted."""


def inspect(
    name: str | None = None,
    /,
    *,
    json: bool = False,
    tensors: bool = False,
    context: int | None = None,
    formats: bool = False,
    experts: Path | None = None,
    seed: int = 0,
    plot: Path | None = None,
) -> int:
    """Count a model's tensors, parameters, bytes and cache; check a folder against them.

    Parameters
    ----------
    name: str
        A preset (k3.1-pro, k3, kimi-linear-48b, nano, debug) or a folder with a config.json. A preset
        wins over a folder of the same name; ./NAME is always a folder.
    json: bool
        Print one JSON object (schema gossamer.inventory/1) instead of tables.
    tensors: bool
        List every tensor with dtype and shape.
    context: int
        Tokens of context for the FLOPs; the model's maximum when not given.
    formats: bool
        Measure how much signal each number format keeps, instead of inspecting a model.
    experts: Path
        Show how traffic fell on the experts of each layer, instead of inspecting a model. The file is a
        saved metrics page of a server (curl http://127.0.0.1:8080/metrics > LOG) or what --json printed.
    seed: int
        Seed of the weights that --formats measures on.
    plot: Path
        Write the plot of --formats, or the heat-map of --experts, to this SVG file.
    """
    if experts is not None:
        from gossamer.cli import experts as command

        if formats or name is not None:
            raise ConfigError(f"--experts reads {experts} alone; leave off {name or '--formats'}")
        return command.show(experts, plot=plot, json=json)
    if formats:
        from gossamer.cli.formats import show

        return show(seed=seed, plot=plot, json=json)
    if name is None:
        raise ConfigError(
            f"inspect needs a preset ({', '.join(presets.NAMES)}), a folder, --formats or --experts"
        )
    if context is not None and context < 1:
        raise ConfigError(f"--context must be at least 1, got {context}")
    found = build(name, context=context, with_tensors=tensors)
    if json:
        import sys

        from gossamer.records.envelope import encode

        sys.stdout.write(encode(found).decode())
    else:
        for line in inventory_lines(found):
            print(line)
    return 0 if found.comparison is None or found.comparison.is_complete else 1


def build(name: str, *, context: int | None = None, with_tensors: bool = False) -> Inventory:
    """The inventory record of a preset or a folder.

    Raises:
        ConfigError: neither a preset nor a folder with a readable config.json.
        CheckpointError: the folder's weights are damaged.
    """
    if name in presets.NAMES:
        return describe(presets.load(name), source="preset", context=context, with_tensors=with_tensors)
    folder = Path(name)
    if not folder.exists():
        raise ConfigError(
            f"{name!r} is neither a preset ({', '.join(presets.NAMES)}) nor a folder that exists"
        )
    config = hf.read(folder)
    if folder.is_dir() and has_weights(folder):
        config, comparison = check_folder(config, folder)
    else:
        comparison = None
    return describe(
        config, source="folder", context=context, with_tensors=with_tensors, comparison=comparison
    )


def has_weights(folder: Path) -> bool:
    """Whether a folder holds a checkpoint or an index of one."""
    return (folder / "model.safetensors.index.json").exists() or any(folder.glob("*.safetensors"))


def check_folder(config: ModelConfig, folder: Path) -> tuple[ModelConfig, Comparison]:
    """Read every header of a checkpoint folder and compare it with the config.

    Returns:
        The config as the files store it (packed experts or not), and the comparison.
    """
    from gossamer.checkpoint import CheckpointReader
    from gossamer.checkpoint.expect import check
    from gossamer.config.layout import with_storage_of

    with CheckpointReader.open(folder) as reader:
        config = with_storage_of(config, reader.names())
        problems = check(reader, count.tensors(config))
        sizes = [info.nbytes for info in reader.infos()]
        num_files = len(reader.shards())
    missing = [p.name for p in problems if p.kind == "missing"]
    extra = [p.name for p in problems if p.kind == "extra"]
    differing = [p for p in problems if p.kind in ("dtype", "shape")]
    return config, records.Comparison(
        num_files=num_files,
        num_tensors=len(sizes),
        num_bytes=sum(sizes),
        is_complete=not missing and not differing,
        missing=tuple(missing[:MAX_LISTED]),
        extra=tuple(extra[:MAX_LISTED]),
        differing=tuple(
            records.Difference(
                name=p.name,
                file=p.file or "",
                expected=f"{p.kind} {p.expected}",
                found=f"{p.kind} {p.found}",
            )
            for p in differing[:MAX_LISTED]
        ),
        num_missing=len(missing),
        num_extra=len(extra),
        num_differing=len(differing),
    )


def describe(
    config: ModelConfig,
    *,
    source: records.Source,
    context: int | None,
    with_tensors: bool,
    comparison: Comparison | None = None,
) -> Inventory:
    """The counts of a config as an inventory record."""
    sums = count.summary(config, context=context)
    return records.Inventory(
        name=config.name,
        source=source,
        family=config.family,
        num_layers=config.num_layers,
        num_kda_layers=config.num_layers - len(config.full_attention_layers),
        num_full_attention_layers=len(config.full_attention_layers),
        num_tensors=sums.num_tensors_high if sums.is_settled else None,
        num_tensors_low=sums.num_tensors_low,
        num_tensors_high=sums.num_tensors_high,
        unsettled_tensors=sums.unsettled,
        num_parameters=sums.num_parameters,
        num_unsettled_parameters=sums.num_unsettled_parameters,
        num_active_parameters=sums.num_active_parameters,
        num_vision_parameters=sums.component("vision_tower").num_parameters,
        num_bytes=sums.num_bytes,
        num_packed_bytes=sums.num_packed_bytes,
        components=tuple(_component(row) for row in sums.components),
        flops_per_token=_flops(sums.flops),
        latent_bytes_per_token=sums.latent_bytes_per_token,
        indexer_bytes_per_token=sums.indexer_bytes_per_token,
        cache_bytes_per_token_bf16=sums.latent_bytes_per_token["bf16"]
        + sums.indexer_bytes_per_token.get("bf16", 0),
        state_bytes_per_sequence=sums.state_bytes_per_sequence,
        basis=_basis(sums, has_files=comparison is not None),
        unknown_config_keys=tuple(sorted(hf.unknown_keys(config))),
        comparison=comparison,
        tensors=tuple(_tensor(spec) for spec in count.tensors(config)) if with_tensors else None,
    )


def _component(row: count.ComponentRow) -> records.Component:
    return records.Component(
        name=row.component,
        num_tensors=row.num_tensors,
        num_parameters=row.num_parameters,
        num_active_parameters=row.num_active_parameters,
        num_bytes=row.num_bytes,
    )


def _tensor(spec: count.TensorSpec) -> records.Tensor:
    return records.Tensor(
        name=spec.name,
        dtype=spec.dtype,
        shape=spec.shape,
        component=spec.component,
        is_optional=spec.optional,
    )


def _flops(flops: count.Flops) -> records.Flops:
    return records.Flops(
        context=flops.context,
        linear=flops.linear,
        attention=flops.attention,
        indexer=flops.indexer,
        kda=flops.kda,
        total=flops.total,
    )


def _basis(sums: count.Summary, *, has_files: bool) -> dict[str, records.Basis]:
    # Exact up to the tensors no source settles; those add at most num_unsettled_parameters.
    sized: records.Basis = "exact" if sums.is_settled else "unsettled"
    basis: dict[str, records.Basis] = {
        "num_tensors": sized,
        "num_parameters": sized,
        "num_active_parameters": sized,
        "num_bytes": sized,
        "components": sized,
        "num_vision_parameters": "exact",
        "num_packed_bytes": "exact",
        "latent_bytes_per_token": "exact",
        "indexer_bytes_per_token": "exact",
        "cache_bytes_per_token_bf16": "exact",
        "state_bytes_per_sequence": "exact",
        "flops_per_token": "estimated",
    }
    if has_files:
        basis["comparison"] = "measured"
    return basis
