"""From a name or a folder to a model that is ready to answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import gossamer
from gossamer.config import presets
from gossamer.config.model import ModelConfig
from gossamer.engine.batched import BatchedEngine
from gossamer.engine.native_runner import NativeRunner, build, fit, open_folder
from gossamer.engine.settings import EngineSettings
from gossamer.errors import GossamerError
from gossamer.kernels.network import Precision
from gossamer.kernels.random_weights import random_weights
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.text.tokenizer import Tokenizer

BUNDLED = Path(gossamer.__file__).parent / "data"
"""Models that ship in the package, a folder each."""
SMALL = ("nano", "debug")
MAX_SEQUENCES = 16
MAX_THREADS, MOST_SEQUENCES = 1024, 4096
SMALL_CACHE, CACHE_SHARE = 1 << 30, 0.25
"""Cache of nano and debug in bytes; share of the free memory for any other model."""


class LoadError(GossamerError, ValueError):
    """There is no model to answer with under that name."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model ready to answer."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    runner: NativeRunner
    engine: BatchedEngine
    upstream: EngineUpstream


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What an engine may take.

    Attributes:
        threads: That compute; None takes one for nano and debug, every core otherwise.
        cache_bytes: For sequences' state and cache; None takes a share of the free memory.
        max_sequences: Most requests at a time; others wait.
        precision: Of products; see `gossamer.kernels.network.Precision`.
        instructions: The kernels' instruction set; None takes the best that runs here.
    """

    threads: int | None = None
    cache_bytes: int | None = None
    max_sequences: int = MAX_SEQUENCES
    precision: Precision = field(default_factory=Precision)
    instructions: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, most in (
            ("threads", MAX_THREADS),
            ("max_sequences", MOST_SEQUENCES),
            ("cache_bytes", None),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= (most or value):
                limit = f"from 1 to {most}" if most else "at least 1"
                raise LoadError(f"{name} must be {limit}, got {value}")


def load(
    model: str, *, seed: int | None = None, resources: Resources | None = None, warn: Callable[[str], None]
) -> Loaded:
    """Load a model.

    Args:
        model: ``nano`` (bundled weights), ``debug`` (random weights), or a folder in the published
            layout with its tokenizer; a preset name wins over a folder of that name.
        seed: Default seed of the engine, and of random weights (0 there if None).
        resources: What it may take.
        warn: Told what the user should know about this model.

    Raises:
        LoadError: no such model, a preset without weights, or a tokenizer that does not fit.
        gossamer.errors.GossamerError: damaged config, weights or vocabulary.
    """
    wanted = resources or Resources()
    threads, memory = _taken(model, wanted)
    if model == "debug":
        warn("model 'debug' has random weights: its answers are noise, good for testing the plumbing only")
        config = presets.load("debug")
        cache = fit(config, memory_bytes=memory, max_sequences=wanted.max_sequences)
        weights = random_weights(config, seed or 0)
        runner = build(
            config,
            weights,
            cache=cache,
            threads=threads,
            precision=wanted.precision,
            instructions=wanted.instructions,
        )
        return _assemble(model, runner, Tokenizer.bytes_only(), seed)
    folder = _folder(model)
    runner = open_folder(
        folder,
        memory_bytes=memory,
        max_sequences=wanted.max_sequences,
        threads=threads,
        precision=wanted.precision,
        instructions=wanted.instructions,
    )
    return _assemble(model_name(model), runner, Tokenizer.load(folder), seed)


def model_name(model: str) -> str:
    """The id a model is served under unless another is chosen: a preset's name, or the folder's."""
    return model if model in presets.NAMES else Path(model).resolve().name


def _taken(model: str, resources: Resources) -> tuple[int, int]:
    """Threads and cache bytes."""
    small = model in SMALL
    # Matrices this small cost more to share among threads than to multiply in one.
    threads = resources.threads or (1 if small else _cores())
    if resources.cache_bytes is not None:
        return threads, resources.cache_bytes
    return threads, SMALL_CACHE if small else max(SMALL_CACHE, int(CACHE_SHARE * _free_memory()))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _free_memory() -> int:
    """Bytes that may be taken: what the system counts as available, or what a control group leaves."""
    free = 0
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = 1024 * int(line.split()[1])
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    return free if limit is None or used is None else min(free, max(0, limit - used))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None


def _folder(model: str) -> Path:
    if model == "nano":
        folder = BUNDLED / "nano"
        if not (folder / "config.json").is_file():
            raise LoadError(
                f"the bundled nano weights are missing from this installation ({folder}); "
                "reinstall the package, or try `debug`, which needs none"
            )
        return folder
    if model in presets.NAMES:
        raise LoadError(f"preset {model!r} has no weights here; give the folder that holds them")
    folder = Path(model)
    if not folder.is_dir():
        raise LoadError(f"no model {model!r}: neither nano nor debug nor a folder")
    return folder


def _assemble(name: str, runner: NativeRunner, tokenizer: Tokenizer, seed: int | None) -> Loaded:
    config = runner.config
    if tokenizer.vocab_size > config.vocab_size:
        raise LoadError(
            f"{name}: the tokenizer has {tokenizer.vocab_size} ids, the model only {config.vocab_size}"
        )
    # Every sequence that has a slot may run: a token each, and a block of somebody's prompt.
    tokens = max(EngineSettings.max_batch_tokens, runner.num_slots + runner.block_size - 1)
    engine = BatchedEngine(runner, EngineSettings(max_batch_tokens=tokens, seed=seed))
    upstream = EngineUpstream(engine=engine, tokenizer=tokenizer, vocab_size=config.vocab_size)
    return Loaded(
        name=name, config=config, tokenizer=tokenizer, runner=runner, engine=engine, upstream=upstream
    )
