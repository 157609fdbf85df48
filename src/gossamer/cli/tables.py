"""Inventory records as plain text.

Plain because importing a table renderer takes longer than these commands may take altogether, and
because text that is the same in a terminal, a pipe and the documentation can be tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossamer.records.inventory import Comparison, Inventory

SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
BYTE_SCALES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
Row = tuple[str, ...]


def inventory_lines(found: Inventory) -> Iterator[str]:
    """Headline, components, costs, the comparison with the files and the tensor list, where present."""
    yield (
        f"{found.name}: family {found.family}, {found.num_layers} layers "
        f"({found.num_kda_layers} KDA, {found.num_full_attention_layers} full attention)"
    )
    yield ""
    yield from aligned(_headline(found), right={1})
    yield ""
    yield from aligned(_components(found), right={1, 2, 3, 4})
    if found.unsettled_tensors:
        yield ""
        yield "unsettled: no source says whether these exist (sums include them)"
        yield from (f"  {pattern}" for pattern in found.unsettled_tensors)
    if found.unknown_config_keys:
        yield ""
        yield "config keys that are kept but not understood"
        yield from (f"  {key}" for key in found.unknown_config_keys)
    if found.comparison is not None:
        yield ""
        yield from _comparison(found.comparison)
    for tensor in found.tensors or ():
        mark = "  (unsettled)" if tensor.is_optional else ""
        yield f"{tensor.name}  {tensor.dtype}  {list(tensor.shape)}{mark}"


def aligned(rows: list[Row], *, right: set[int]) -> Iterator[str]:
    """Rows as columns, two spaces apart; the columns in ``right`` are aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def short(value: float, scales: tuple[tuple[float, str], ...] = SCALES, digits: int = 2) -> str:
    """A number in the largest unit that leaves at least 1."""
    for size, unit in scales:
        if value >= size:
            return f"{value / size:,.{digits}f} {unit}"
    return f"{value:,.0f}"


def _headline(found: Inventory) -> list[Row]:
    basis = found.basis
    tensors = (
        f"{found.num_tensors_high:,}"
        if found.num_tensors is not None
        else f"{found.num_tensors_low:,}-{found.num_tensors_high:,}"
    )
    total, active, vision = found.num_parameters, found.num_active_parameters, found.num_vision_parameters
    unsettled = found.num_unsettled_parameters
    doubt = f", of which {unsettled:,} unsettled" if unsettled else ""
    rows: list[Row] = [
        ("quantity", "value", "basis", "note"),
        ("tensors", tensors, basis["num_tensors"], ""),
        ("parameters", f"{total:,}", basis["num_parameters"], _billions(total) + doubt),
        (
            "active per token",
            f"{active:,}",
            basis["num_active_parameters"],
            f"{_billions(active)}, input embedding excluded",
        ),
    ]
    if vision:
        note = f"{vision / 1e6:.1f} M"
        rows.append(("vision tower", f"{vision:,}", basis["num_vision_parameters"], note))
    size = found.num_bytes
    rows.append(("bytes on disk", f"{size:,}", basis["num_bytes"], short(size, BYTE_SCALES, 4)))
    return rows + _costs(found)


def _costs(found: Inventory) -> list[Row]:
    basis = found.basis
    rows: list[Row] = []
    for label, field, sizes in (
        ("latent KV B/token", "latent_bytes_per_token", found.latent_bytes_per_token),
        ("indexer keys B/token", "indexer_bytes_per_token", found.indexer_bytes_per_token),
    ):
        if sizes:
            others = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if name != "bf16")
            rows.append((label, f"{sizes['bf16']:,}", basis[field], f"BF16; {others}"))
    state = found.state_bytes_per_sequence
    note = f"F32 state, BF16 tails; BF16 state {state['bf16']:,}"
    rows.append(("KDA state B/sequence", f"{state['f32']:,}", basis["state_bytes_per_sequence"], note))
    flops = found.flops_per_token
    note = (
        f"at {flops.context:,} tokens: linear {short(flops.linear)}, attention {short(flops.attention)}, "
        f"indexer {short(flops.indexer)}, KDA {short(flops.kda)}"
    )
    rows.append(("FLOPs per token", f"{flops.total:,}", basis["flops_per_token"], note))
    return rows


def _billions(value: int) -> str:
    return f"{value / 1e9:,.2f} B" if value >= 1e9 else short(value)


def _components(found: Inventory) -> list[Row]:
    rows: list[Row] = [("component", "tensors", "parameters", "active", "bytes")]
    for row in found.components:
        numbers = (row.num_tensors, row.num_parameters, row.num_active_parameters, row.num_bytes)
        rows.append((row.name, *(f"{number:,}" for number in numbers)))
    return rows


def _comparison(result: Comparison) -> Iterator[str]:
    verdict = "complete" if result.is_complete else "NOT COMPLETE"
    yield (
        f"files (measured): {verdict}; {result.num_tensors:,} tensors, {result.num_bytes:,} bytes in "
        f"{result.num_files} file(s); {result.num_missing:,} missing, {result.num_differing:,} differing, "
        f"{result.num_extra:,} extra"
    )
    differing = [f"{d.file}: {d.name}: expected {d.expected}, found {d.found}" for d in result.differing]
    for title, total, names in (
        ("missing", result.num_missing, list(result.missing)),
        ("differing", result.num_differing, differing),
        ("extra", result.num_extra, list(result.extra)),
    ):
        yield from (f"  {title}: {name}" for name in names)
        if total > len(names):
            yield f"  {title}: {total - len(names):,} more"
