"""Layer lists of a config.json: 1-based in the file, 0-based everywhere else."""

from __future__ import annotations

from typing import Any

from gossamer.config.model import ConfigError


def brief(value: Any) -> str:
    """A value for an error message, cut so that the message stays one readable line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def check_list(value: Any, path: str) -> tuple[int, ...]:
    """A JSON list of integers as a tuple.

    Raises:
        ConfigError: it is not a list, or an item is not an integer.
    """
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{path} must be a list of layer numbers, got {brief(value)}")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool):
            raise ConfigError(f"{path} must hold integers, got {brief(item)}")
    return tuple(value)


def to_zero_based(listed: tuple[int, ...], num_layers: int, path: str) -> tuple[int, ...]:
    """Layer indices from a 1-based list.

    Raises:
        ConfigError: a number outside 1..num_layers, or one that stands twice.
    """
    outside = [i for i in listed if not 1 <= i <= num_layers]
    if outside:
        raise ConfigError(
            f"{path} names layer {outside[0]}; layers are numbered 1..{num_layers} in this file"
        )
    if len(set(listed)) != len(listed):
        twice = next(i for i in listed if listed.count(i) > 1)
        raise ConfigError(f"{path} names layer {twice} twice")
    return tuple(i - 1 for i in listed)


def to_one_based(indices: tuple[int, ...]) -> list[int]:
    """A list as the file has it."""
    return [i + 1 for i in indices]


def full_attention(
    full: tuple[int, ...] | None, linear: tuple[int, ...] | None, num_layers: int, where: str
) -> tuple[int, ...]:
    """The 0-based full-attention layers from one or both 1-based lists of the file.

    Raises:
        ConfigError: neither list is there, they overlap, or together they miss a layer.
    """
    if full is None and linear is None:
        raise ConfigError(f"{where} has neither full_attn_layers nor kda_layers")
    given_full = None if full is None else to_zero_based(full, num_layers, f"{where}.full_attn_layers")
    given_linear = None if linear is None else to_zero_based(linear, num_layers, f"{where}.kda_layers")
    if given_linear is None:
        assert given_full is not None
        return given_full
    if given_full is None:
        return complement(given_linear, num_layers)
    both = sorted(set(given_full) & set(given_linear))
    if both:
        raise ConfigError(
            f"{where}: layers {to_one_based(tuple(both))} stand in both full_attn_layers and kda_layers"
        )
    missing = complement(given_full + given_linear, num_layers)
    if missing:
        raise ConfigError(
            f"{where}: layers {to_one_based(missing)} stand in neither full_attn_layers nor kda_layers"
        )
    return given_full


def complement(indices: tuple[int, ...], num_layers: int) -> tuple[int, ...]:
    """The layers of 0..num_layers-1 that are not in ``indices``, ascending."""
    return tuple(sorted(set(range(num_layers)) - set(indices)))
