"""Named models that ship as config.json files next to this module."""

from __future__ import annotations

import json
from pathlib import Path

from gossamer.config import hf
from gossamer.config.model import ConfigError, ModelConfig

FOLDER = Path(__file__).with_name("presets")
NAMES = ("k3.1-pro", "k3", "kimi-linear-48b", "nano", "debug")


def load(name: str) -> ModelConfig:
    """The preset of that name.

    Raises:
        ConfigError: there is no such preset; the message lists them.
    """
    if name not in NAMES:
        raise ConfigError(f"no preset {name!r}; there are {', '.join(NAMES)}")
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    return hf.parse(json.loads(text), name=name)
