"""The serving process: port first, then the model, then requests until a signal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gossamer.gateway import process
from gossamer.gateway.app import MAX_BODY_BYTES, create_app
from gossamer.gateway.keys import KeyRing
from gossamer.gateway.media import MediaFetcher
from gossamer.gateway.service import ServiceSettings, is_loopback
from gossamer.protocol.request import Passback
from gossamer.server.metrics import PATH as METRICS_PATH
from gossamer.server.metrics import ServingMetrics

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette

    from gossamer.gateway.logs import LogFormat
    from gossamer.kernels.cache_rows import CacheType, StateType
    from gossamer.kernels.network import Activations, Trunk
    from gossamer.server.load import Loaded

MOST_BODY_BYTES, MOST_DRAIN_S = 4 << 30, 3600
MIN_CONTEXT = 16
TWIN = "-highspeed"
"""Ends the id of a second name of the same model: clients of the family choose between the two."""


@dataclass(frozen=True, kw_only=True)
class FrontOptions:
    """What the HTTP front asks of its clients.

    Attributes:
        api_keys: Their file; None serves everybody.
        allow_public: Serve everybody even where other machines reach the server.
        allow_origins: Web pages that may read answers.
        media_hosts: Where images may be fetched from; see `gossamer.gateway.media.MediaHost`.
        max_body_bytes: Of one request.
        drain_s: Seconds that answers in flight are given when the server is asked to end.
        passback: See `gossamer.protocol.request.parse`.
        strict_kimi: The same.
        both_names: See `gossamer.gateway.app.create_app`.
        max_context: Most tokens of prompt and answer together; None leaves it to the engine.
        log_level: What is logged; see `gossamer.gateway.logs`.
        log_format: How.
    """

    api_keys: Path | None = None
    allow_public: bool = False
    allow_origins: tuple[str, ...] = ()
    media_hosts: tuple[str, ...] = ()
    max_body_bytes: int = MAX_BODY_BYTES
    drain_s: float = process.DRAIN_S
    passback: Passback = "reject"
    strict_kimi: bool = False
    both_names: bool = False
    max_context: int | None = None
    log_level: str = "info"
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        """Refuse what cannot be served with."""
        if not 1 <= self.max_body_bytes <= MOST_BODY_BYTES:
            raise process.ServeError(
                f"the largest body must be from 1 to {MOST_BODY_BYTES:,} bytes, got {self.max_body_bytes:,}"
            )
        if self.max_context is not None and self.max_context < MIN_CONTEXT:
            raise process.ServeError(
                f"--max-context must be at least {MIN_CONTEXT} tokens, got {self.max_context}"
            )
        if not 0 <= self.drain_s <= MOST_DRAIN_S:
            raise process.ServeError(
                f"--drain must be from 0 to {MOST_DRAIN_S} seconds, got {self.drain_s:g}"
            )

    def settings(self, host: str) -> ServiceSettings:
        """The same for the front, at the address it will listen on.

        Raises:
            gossamer.gateway.process.ServeError: strangers would be let in.
            gossamer.gateway.keys.KeyFileError: the keys cannot be read.
        """
        process.check_exposure(host, has_keys=self.api_keys is not None, allow_public=self.allow_public)
        keys = None if self.api_keys is None else KeyRing(self.api_keys)
        # Where only this machine's own people are meant, a page of the web that calls itself by another name
        # must not be one of them.
        private = keys is None and is_loopback(host)
        hosts = frozenset({"localhost", "127.0.0.1", "::1", host.lower()}) if private else None
        return ServiceSettings(keys=keys, allowed_hosts=hosts, allow_origins=self.allow_origins)


DEFAULT_FRONT = FrontOptions()


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
    max_queue: int | None = None,
    front: FrontOptions = DEFAULT_FRONT,
) -> int:
    """Serve one model until SIGINT or SIGTERM; returns the exit code.

    Raises:
        gossamer.gateway.process.ServeError: port taken, an unknown log level, or strangers would be let in.
        gossamer.gateway.keys.KeyFileError: the keys cannot be read.
        gossamer.gateway.media.MediaHostError: a media host cannot be meant so.
        gossamer.errors.GossamerError: the model cannot be loaded.
    """
    process.configure_logging(front.log_level, front.log_format)
    settings = front.settings(host)
    fetch = MediaFetcher.of(front.media_hosts).body if front.media_hosts else None
    with process.bind(host, port) as sock:
        process.say(f"loading {model}")
        # Only now: a taken port should be told at once.
        from gossamer.kernels.network import Precision
        from gossamer.server.load import MAX_QUEUE, SPILL_BYTES, Resources, load

        resources = Resources(
            threads=threads,
            cache_bytes=cache_bytes,
            max_sequences=max_sequences,
            max_queue=MAX_QUEUE if max_queue is None else max_queue,
            precision=Precision(activations=activations, trunk=trunk),
            cache_dtype=cache_dtype,
            state_dtype=state_dtype,
            spill=spill,
            spill_bytes=SPILL_BYTES if spill_bytes is None else spill_bytes,
            instructions=instructions,
        )
        loaded = load(model, seed=seed, resources=resources, fetch=fetch, warn=_warn)
        name = served_model_name or loaded.name
        app = _app(name, loaded, front, settings)
        ready = f"serving {name} at {process.address(sock)} (Ctrl-C stops)"
        process.run(app, sock, on_ready=lambda: process.say(ready), drain_s=front.drain_s)
    process.say("stopped")
    return 0


def _warn(text: str) -> None:
    process.say(f"WARNING: {text}")


def _app(name: str, loaded: Loaded, front: FrontOptions, settings: ServiceSettings) -> Starlette:
    metrics = ServingMetrics(
        model_name=name,
        engine=loaded.engine,
        expert_loads=loaded.runner.expert_loads,
        # The app counts, and holds the page that shows it.
        front=lambda: app.state.counts,
    )
    upstream = replace(loaded.upstream, context_limit=front.max_context)
    app = create_app(
        {name: upstream, f"{name}{TWIN}": upstream},
        max_body_bytes=front.max_body_bytes,
        passback=front.passback,
        strict_kimi=front.strict_kimi,
        both_names=front.both_names,
        on_close=[loaded.engine.close],
        pages={METRICS_PATH: metrics.page()},
        settings=settings,
        ready=lambda: loaded.engine.is_alive,
    )
    return app
