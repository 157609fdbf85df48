"""What the operator of an engine may choose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gossamer.engine.api import EngineError


class SettingsError(EngineError, ValueError):
    """A setting that no engine can work with."""


@dataclass(frozen=True, kw_only=True)
class SpillSettings:
    """Where evicted prefixes are kept, so that they survive a restart.

    One engine at a time per folder.  Files of another model are never read; they age out.

    Attributes:
        directory: Made if it is missing.
        max_bytes: The files' total; the ones unused for longest go first.
        fingerprint: Names the weights and the arithmetic, e.g. a hash of the checkpoint's index, the runner's
            modes and its version.  A change of it makes all older files foreign.
    """

    directory: Path
    max_bytes: int
    fingerprint: str

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.max_bytes < 1:
            raise SettingsError(
                f"the spill needs max_bytes of at least 1, got {self.max_bytes}; or leave it off"
            )
        if not self.fingerprint:
            raise SettingsError("the spill needs a fingerprint of the model, or it would mix up two models")


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """How prefixes are kept for later requests.

    A prefix can be resumed only where the recurrent state was saved, and one state may be as large as
    thousands of tokens of latent KV: the spacing trades memory against recomputed tokens.

    Attributes:
        max_bytes: Blocks and states together; None allows as much as all blocks and slots of the runner take.
        snapshot_every: Blocks between two saved states.  Prefill pieces end there, so a small spacing also
            makes them short.
        snapshot_last: Whether the last full block edge before the prompt's end is saved too.  It costs a
            forward pass of its own for what is left of the prompt, and serves repeated prompts best.
        spill: None keeps nothing on disk.
    """

    max_bytes: int | None = None
    snapshot_every: int = 16
    snapshot_last: bool = True
    spill: SpillSettings | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.max_bytes is not None and self.max_bytes < 1:
            raise SettingsError(f"the prefix cache needs max_bytes of at least 1, got {self.max_bytes}")
        if self.snapshot_every < 1:
            raise SettingsError(f"snapshot_every must be at least 1 block, got {self.snapshot_every}")

    def last_edge(self, num_prompt: int, block_size: int) -> int:
        """Blocks before the prompt's own edge to save, 0 where there is none.

        At least one token of the prompt comes after it, because a repeated prompt needs logits too.
        """
        return (num_prompt - 1) // block_size if self.snapshot_last else 0

    def is_edge(self, num_blocks: int, last_edge: int) -> bool:
        """Whether the state after ``num_blocks`` blocks is saved."""
        return num_blocks > 0 and (num_blocks % self.snapshot_every == 0 or num_blocks == last_edge)

    def next_edge(self, num_blocks: int, last_edge: int) -> int:
        """The least edge above ``num_blocks`` blocks."""
        edge = (num_blocks // self.snapshot_every + 1) * self.snapshot_every
        return min(edge, last_edge) if num_blocks < last_edge else edge


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How an engine shares its model among requests.

    Attributes:
        max_batch_tokens: Tokens of one step; at least one block.  Bounds how long a running sequence waits
            for its next token while others' prompts are read.
        max_running: Sequences at a time; None takes as many as slots and ``max_batch_tokens`` allow.
        watermark: Part of the blocks that an admission leaves free for the running sequences to grow into.
        aging_s: A request that has waited this long ranks one priority higher, so that none waits forever.
        cache: None computes every prompt from its start.
        seed: For requests that bring none; None takes fresh entropy.
    """

    max_batch_tokens: int = 512
    max_running: int | None = None
    watermark: float = 0.01
    aging_s: float = 30.0
    cache: CacheSettings | None = CacheSettings()
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.max_batch_tokens < 1:
            raise SettingsError(f"max_batch_tokens must be at least 1, got {self.max_batch_tokens}")
        if self.max_running is not None and self.max_running < 1:
            raise SettingsError(f"max_running must be at least 1, got {self.max_running}")
        if not 0 <= self.watermark < 1:
            raise SettingsError(f"watermark is a part of the blocks, from 0 to below 1, got {self.watermark}")
        if not self.aging_s > 0:
            raise SettingsError(f"aging_s must be above 0 s, got {self.aging_s}")

    def running_limit(self, num_slots: int, block_size: int) -> int:
        """Sequences at a time: one token each leaves room in a step for a block of somebody's prompt.

        Raises:
            SettingsError: ``max_batch_tokens`` is less than one block.
        """
        if self.max_batch_tokens < block_size:
            raise SettingsError(
                f"max_batch_tokens {self.max_batch_tokens} is less than one block; set at least {block_size}"
            )
        limit = min(num_slots, self.max_batch_tokens - block_size + 1)
        return limit if self.max_running is None else min(limit, self.max_running)
