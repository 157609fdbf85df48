"""From a name or a folder to a model that is ready to answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

import gossamer
from gossamer.config import presets
from gossamer.config.model import ModelConfig
from gossamer.engine.torch_engine import TorchEngine
from gossamer.errors import GossamerError
from gossamer.model.load import load as load_model
from gossamer.model.transformer import Transformer
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.text.tokenizer import Tokenizer

BUNDLED = Path(gossamer.__file__).parent / "data"
"""Models that ship in the package, a folder each."""
SMALL = ("nano", "debug")


class LoadError(GossamerError, ValueError):
    """There is no model to answer with under that name."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model ready to answer."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    engine: TorchEngine
    upstream: EngineUpstream


def load(
    model: str, *, seed: int | None = None, threads: int | None = None, warn: Callable[[str], None]
) -> Loaded:
    """Load a model.

    Args:
        model: ``nano`` (bundled weights), ``debug`` (random weights), or a folder in the published
            layout with its tokenizer; a preset name wins over a folder of that name.
        seed: Default seed of the engine, and of random weights (0 there if None).
        threads: CPU threads of torch; None takes one for nano and debug, torch's own choice otherwise.
        warn: Told what the user should know about this model.

    Raises:
        LoadError: no such model, a preset without weights, or a tokenizer that does not fit.
        gossamer.errors.GossamerError: damaged config, weights or vocabulary.
    """
    if threads is None and model in SMALL:
        # Matrices this small cost more to share among threads than to multiply in one.
        threads = 1
    if threads is not None:
        if threads < 1:
            raise LoadError(f"threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
    if model == "debug":
        warn("model 'debug' has random weights: its answers are noise, good for testing the plumbing only")
        config = presets.load("debug")
        network = Transformer(config, seed=seed or 0).eval()
        return _assemble(model, network, config, Tokenizer.bytes_only(), seed)
    folder = _folder(model)
    network = load_model(folder)
    return _assemble(model_name(model), network, network.config, Tokenizer.load(folder), seed)


def model_name(model: str) -> str:
    """The id a model is served under unless another is chosen: a preset's name, or the folder's."""
    return model if model in presets.NAMES else Path(model).resolve().name


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


def _assemble(
    name: str, network: Transformer, config: ModelConfig, tokenizer: Tokenizer, seed: int | None
) -> Loaded:
    if tokenizer.vocab_size > config.vocab_size:
        raise LoadError(
            f"{name}: the tokenizer has {tokenizer.vocab_size} ids, the model only {config.vocab_size}"
        )
    engine = TorchEngine(network, vocab_size=config.vocab_size, max_context=config.max_context, seed=seed)
    upstream = EngineUpstream(engine=engine, tokenizer=tokenizer, vocab_size=config.vocab_size)
    return Loaded(name=name, config=config, tokenizer=tokenizer, engine=engine, upstream=upstream)
