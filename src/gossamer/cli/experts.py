"""`gossamer inspect --experts LOG`: how traffic fell on the experts, as a table, a record and a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.formats import PlotError

if TYPE_CHECKING:
    from gossamer.records.expert_load import ExpertLoad


def show(log: Path, *, plot: Path | None, json: bool) -> int:
    """Read, print, and write the picture when asked.

    Raises:
        ExpertLogError: the log has no expert loads.
        RecordError: the log is JSON of another kind.
        PlotError: the picture cannot be written where it was asked for.
    """
    from gossamer.server import expert_log

    found = expert_log.read(log)
    if json:
        from gossamer.records.envelope import encode

        sys.stdout.write(encode(found).decode())
    else:
        for line in lines(found):
            print(line)
    if plot is not None:
        from gossamer.server.expert_map import draw

        try:
            plot.write_text(draw(found), encoding="utf-8")
        except OSError as error:
            raise PlotError(f"cannot write the plot to {plot}: {error.strerror}") from None
    return 0


def lines(found: ExpertLoad) -> Iterator[str]:
    """One row per layer, and what the columns mean."""
    from gossamer.cli.tables import Row, aligned

    layers = f"{len(found.layers)} layer{'s' if len(found.layers) > 1 else ''}"
    # A name from a file must not steer the terminal.
    model = "".join(c if c.isprintable() else "\ufffd" for c in found.model)
    yield f"{model}: load of {found.num_experts} experts in {layers} (measured)"
    yield "a token counts once for each expert that worked on it; evenness: entropy over that of an even load"
    if found.idle_layers:
        yield f"layers without any load: {', '.join(map(str, found.idle_layers))}"
    yield ""
    rows: list[Row] = [("layer", "tokens", "busiest/mean", "busiest", "idle", "evenness")]
    for layer in found.layers:
        idle = f"{100 * layer.num_idle / found.num_experts:.1f}%"
        ratio, even = f"{layer.max_over_mean:.2f}", f"{layer.evenness:.4f}"
        rows.append((str(layer.layer), f"{layer.num_tokens:,}", ratio, str(layer.busiest), idle, even))
    yield from aligned(rows, right={0, 1, 2, 3, 4, 5})
