"""The serving process: port first, then the model, then requests until a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer.gateway import process
from gossamer.gateway.app import create_app
from gossamer.protocol.request import Passback
from gossamer.server.metrics import PATH as METRICS_PATH
from gossamer.server.metrics import ServingMetrics

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from gossamer.kernels.cache_rows import CacheType, StateType
    from gossamer.kernels.network import Activations, Trunk
    from gossamer.server.load import Loaded


def serve(
    model: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    served_model_name: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    max_sequences: int = 16,
    cache_bytes: int | None = None,
    activations: Activations = "exact",
    trunk: Trunk = "stored",
    cache_dtype: CacheType = "bf16",
    state_dtype: StateType = "f32",
    spill: Path | None = None,
    spill_bytes: int | None = None,
    instructions: str | None = None,
    log_level: str = "info",
    passback: Passback = "require",
) -> int:
    """Serve one model until SIGINT or SIGTERM; returns the exit code.

    Raises:
        gossamer.gateway.process.ServeError: port taken or an unknown log level.
        gossamer.errors.GossamerError: the model cannot be loaded.
    """
    process.configure_logging(log_level)
    with process.bind(host, port) as sock:
        process.say(f"loading {model}")
        # Only now: a taken port should be told at once.
        from gossamer.kernels.network import Precision
        from gossamer.server.load import SPILL_BYTES, Resources, load

        resources = Resources(
            threads=threads,
            cache_bytes=cache_bytes,
            max_sequences=max_sequences,
            precision=Precision(activations=activations, trunk=trunk),
            cache_dtype=cache_dtype,
            state_dtype=state_dtype,
            spill=spill,
            spill_bytes=SPILL_BYTES if spill_bytes is None else spill_bytes,
            instructions=instructions,
        )
        loaded = load(
            model, seed=seed, resources=resources, warn=lambda text: process.say(f"WARNING: {text}")
        )
        name = served_model_name or loaded.name
        app = _app(name, loaded, passback)
        ready = f"serving {name} at {process.address(sock)} (Ctrl-C stops)"
        process.run(app, sock, on_ready=lambda: process.say(ready))
    process.say("stopped")
    return 0


def _app(name: str, loaded: Loaded, passback: Passback) -> Starlette:
    metrics = ServingMetrics(model_name=name, engine=loaded.engine, expert_loads=loaded.runner.expert_loads)
    return create_app(
        {name: loaded.upstream},
        passback=passback,
        on_close=[loaded.engine.close],
        pages={METRICS_PATH: metrics.page()},
    )
