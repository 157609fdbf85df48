"""From a name or a folder to a model that is ready to answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import gossamer
from gossamer.config import presets
from gossamer.config.model import ModelConfig
from gossamer.engine.batched import BatchedEngine
from gossamer.engine.native_runner import NativeRunner, build, fit, open_folder
from gossamer.engine.settings import CacheSettings, EngineSettings, SpillSettings
from gossamer.errors import GossamerError
from gossamer.kernels import backend
from gossamer.kernels.cache_rows import CacheType, StateType
from gossamer.kernels.network import Precision
from gossamer.kernels.random_weights import random_weights
from gossamer.kernels.vision_folder import SUBFOLDER, open_tower
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.server.images import Fetch, ImageEncoder
from gossamer.text.tokenizer import Tokenizer

BUNDLED = Path(gossamer.__file__).parent / "data"
"""Models that ship in the package, a folder each."""
SMALL = ("nano", "debug")
MAX_SEQUENCES = 16
MAX_QUEUE = 256
MAX_THREADS, MOST_SEQUENCES, MOST_QUEUED = 1024, 4096, 1 << 20
SMALL_CACHE, CACHE_SHARE = 1 << 30, 0.25
"""Cache of nano and debug in bytes; share of the free memory for any other model."""
SPILL_BYTES = 8 << 30


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
        max_queue: Most requests that wait; more are told to come again.
        precision: Of products; see `gossamer.kernels.network.Precision`.
        cache_dtype: Of latent KV and indexer keys; see `gossamer.kernels.network.CacheSize`.
        state_dtype: Of KDA state; see there.
        spill: A folder that keeps what the prefix cache drops, so that it survives a restart; None keeps
            nothing.
        spill_bytes: The most its files take.
        instructions: The kernels' instruction set; None takes the best that runs here.
    """

    threads: int | None = None
    cache_bytes: int | None = None
    max_sequences: int = MAX_SEQUENCES
    max_queue: int = MAX_QUEUE
    precision: Precision = field(default_factory=Precision)
    cache_dtype: CacheType = "bf16"
    state_dtype: StateType = "f32"
    spill: Path | None = None
    spill_bytes: int = SPILL_BYTES
    instructions: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name, most in (
            ("threads", MAX_THREADS),
            ("max_sequences", MOST_SEQUENCES),
            ("max_queue", MOST_QUEUED),
            ("cache_bytes", None),
            ("spill_bytes", None),
        ):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= (most or value):
                limit = f"from 1 to {most}" if most else "at least 1"
                raise LoadError(f"{name} must be {limit}, got {value}")
        if self.spill is not None and self.spill.exists() and not self.spill.is_dir():
            raise LoadError(f"the spill wants a folder, {self.spill} is none")


def load(
    model: str,
    *,
    seed: int | None = None,
    resources: Resources | None = None,
    fetch: Fetch | None = None,
    warn: Callable[[str], None],
) -> Loaded:
    """Load a model.

    Args:
        model: ``nano`` (bundled weights), ``debug`` (random weights), or a folder in the published
            layout with its tokenizer; a preset name wins over a folder of that name.
        seed: Default seed of the engine, and of random weights (0 there if None).
        resources: What it may take.
        fetch: Gets images behind URLs; None reads data URLs only.
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
        cache = fit(
            config,
            memory_bytes=memory,
            max_sequences=wanted.max_sequences,
            dtype=wanted.cache_dtype,
            state=wanted.state_dtype,
        )
        weights = random_weights(config, seed or 0)
        runner = build(
            config,
            weights,
            cache=cache,
            threads=threads,
            precision=wanted.precision,
            instructions=wanted.instructions,
        )
        source = f"debug {seed or 0} {gossamer.__version__}"
        return _assemble(model, runner, Tokenizer.bytes_only(), seed, _prefixes(source, wanted), wanted)
    folder = _folder(model)
    runner = open_folder(
        folder,
        memory_bytes=memory,
        max_sequences=wanted.max_sequences,
        threads=threads,
        dtype=wanted.cache_dtype,
        state=wanted.state_dtype,
        precision=wanted.precision,
        instructions=wanted.instructions,
    )
    source = "" if wanted.spill is None else _fingerprint(folder)
    tower = open_tower(folder, runner.config)
    images = None if tower is None else ImageEncoder(*tower, fetch=fetch)
    prefixes = _prefixes(source, wanted)
    return _assemble(model_name(model), runner, Tokenizer.load(folder), seed, prefixes, wanted, images)


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


def _prefixes(source: str, resources: Resources) -> CacheSettings:
    """The prefix cache; on disk it may meet only what the same weights and the same arithmetic left there."""
    if resources.spill is None:
        return CacheSettings()
    precision = resources.precision
    kernels = resources.instructions or next(iter(backend.available()), "numpy")
    modes = (precision.activations, precision.trunk, resources.cache_dtype, resources.state_dtype, kernels)
    spill = SpillSettings(
        directory=resources.spill,
        max_bytes=resources.spill_bytes,
        fingerprint=" ".join((source, *modes)),
    )
    return CacheSettings(spill=spill)


def _fingerprint(folder: Path) -> str:
    """Tells checkpoints apart without reading them whole: config, and each file's header, size and time."""
    digest = blake2b(gossamer.__version__.encode())
    for path in sorted(
        [folder / "config.json", *folder.glob("*.safetensors"), *(folder / SUBFOLDER).glob("*")]
    ):
        found = path.stat()
        with path.open("rb") as file:
            head = file.read(1 << 20)
        digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns} {len(head)}\n".encode())
        digest.update(head)
    return digest.hexdigest()


def _assemble(
    name: str,
    runner: NativeRunner,
    tokenizer: Tokenizer,
    seed: int | None,
    prefixes: CacheSettings,
    resources: Resources,
    images: ImageEncoder | None = None,
) -> Loaded:
    config = runner.config
    if tokenizer.vocab_size > config.vocab_size:
        raise LoadError(
            f"{name}: the tokenizer has {tokenizer.vocab_size} ids, the model only {config.vocab_size}"
        )
    # Every sequence that has a slot may run: a token each, and a block of somebody's prompt.
    tokens = max(EngineSettings.max_batch_tokens, runner.num_slots + runner.block_size - 1)
    settings = EngineSettings(max_batch_tokens=tokens, seed=seed, cache=prefixes)
    engine = BatchedEngine(runner, settings, max_queue=resources.max_queue)
    upstream = EngineUpstream(engine=engine, tokenizer=tokenizer, vocab_size=config.vocab_size, images=images)
    return Loaded(
        name=name, config=config, tokenizer=tokenizer, runner=runner, engine=engine, upstream=upstream
    )
