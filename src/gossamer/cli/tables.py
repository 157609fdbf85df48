"""Terminal tables of an inventory record.  rich is imported here, so only where a table is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from gossamer.records.inventory import Comparison, Inventory

SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
BYTE_SCALES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def show_inventory(found: Inventory) -> None:
    """Print headline, components, costs, and the comparison with the files when there is one."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{found.name}[/bold]  family {found.family}, {found.num_layers} layers: "
        f"{found.num_kda_layers} KDA, {found.num_full_attention_layers} full attention"
    )
    console.print(_headline(found))
    console.print(_components(found))
    if found.unsettled_tensors:
        console.print("unsettled (no source says whether these exist; sums include them):")
        for pattern in found.unsettled_tensors:
            console.print(f"  {pattern}", markup=False)
    if found.unknown_config_keys:
        console.print("config keys that are kept but not understood:")
        for key in found.unknown_config_keys:
            console.print(f"  {key}", markup=False)
    if found.comparison is not None:
        _show_comparison(console, found.comparison)
    if found.tensors is not None:
        for tensor in found.tensors:
            mark = "  (unsettled)" if tensor.is_optional else ""
            print(f"{tensor.name}  {tensor.dtype}  {list(tensor.shape)}{mark}")


def short(value: float, scales: tuple[tuple[float, str], ...] = SCALES, digits: int = 2) -> str:
    """A number in the largest unit that leaves at least 1."""
    for size, unit in scales:
        if value >= size:
            return f"{value / size:,.{digits}f} {unit}"
    return f"{value:,.0f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        is_number = 0 < i and column != "basis" and column != "note"
        table.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    return table


def _headline(found: Inventory) -> Table:
    basis = found.basis
    table = _table("quantity", "value", "basis", "note")
    tensors = (
        f"{found.num_tensors_high:,}"
        if found.num_tensors is not None
        else f"{found.num_tensors_low:,}-{found.num_tensors_high:,}"
    )
    table.add_row("tensors", tensors, basis["num_tensors"], "")
    table.add_row(
        "parameters", f"{found.num_parameters:,}", basis["num_parameters"], _billions(found.num_parameters)
    )
    table.add_row(
        "active per token",
        f"{found.num_active_parameters:,}",
        basis["num_active_parameters"],
        f"{_billions(found.num_active_parameters)}, input embedding excluded",
    )
    if found.num_vision_parameters:
        vision = found.num_vision_parameters
        table.add_row("vision tower", f"{vision:,}", basis["num_vision_parameters"], f"{vision / 1e6:.1f} M")
    table.add_row(
        "bytes on disk", f"{found.num_bytes:,}", basis["num_bytes"], short(found.num_bytes, BYTE_SCALES, 4)
    )
    for label, field, sizes in (
        ("latent KV", "latent_bytes_per_token", found.latent_bytes_per_token),
        ("indexer keys", "indexer_bytes_per_token", found.indexer_bytes_per_token),
    ):
        if sizes:
            others = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if name != "bf16")
            table.add_row(f"{label} B/token", f"{sizes['bf16']:,}", basis[field], f"bf16; {others}")
    state = found.state_bytes_per_sequence
    table.add_row(
        "KDA state B/sequence",
        f"{state['f32']:,}",
        basis["state_bytes_per_sequence"],
        f"f32 state; bf16 {state['bf16']:,}",
    )
    flops = found.flops_per_token
    table.add_row(
        "FLOPs per token",
        short(flops.total),
        basis["flops_per_token"],
        f"at {flops.context:,} tokens: linear {short(flops.linear)}, attention {short(flops.attention)}, "
        f"indexer {short(flops.indexer)}, KDA {short(flops.kda)}",
    )
    return table


def _billions(value: int) -> str:
    return f"{value / 1e9:,.2f} B" if value >= 1e9 else short(value)


def _components(found: Inventory) -> Table:
    table = _table("component", "tensors", "parameters", "active", "bytes")
    for row in found.components:
        table.add_row(
            row.name,
            f"{row.num_tensors:,}",
            f"{row.num_parameters:,}",
            f"{row.num_active_parameters:,}",
            f"{row.num_bytes:,}",
        )
    return table


def _show_comparison(console: Console, result: Comparison) -> None:
    verdict = "complete" if result.is_complete else "NOT COMPLETE"
    console.print(
        f"[bold]files[/bold] (measured): {verdict}; {result.num_tensors:,} tensors, "
        f"{result.num_bytes:,} bytes in {result.num_files} file(s); {result.num_missing:,} missing, "
        f"{result.num_differing:,} differing, {result.num_extra:,} extra"
    )
    for title, total, names in (
        ("missing", result.num_missing, list(result.missing)),
        (
            "differing",
            result.num_differing,
            [f"{d.name}: expected {d.expected}, found {d.found}" for d in result.differing],
        ),
        ("extra", result.num_extra, list(result.extra)),
    ):
        for name in names:
            console.print(f"  {title}: {name}", markup=False)
        if total > len(names):
            console.print(f"  {title}: {total - len(names):,} more")
