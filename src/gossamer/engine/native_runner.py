"""The native network as the engine core's `Runner`.

Shapes: V vocabulary, R rows whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.checkpoint import CheckpointReader
from gossamer.config import hf
from gossamer.config.model import ModelConfig
from gossamer.engine.api import EngineError, Logits
from gossamer.engine.runner import Segment, Snapshot
from gossamer.kernels.network import CacheSize, CacheType, Network, NetworkError, tables_of
from gossamer.kernels.weights import from_checkpoint, settled

BLOCK_SIZE = 64


class NativeRunner:
    """See `gossamer.engine.runner.Runner`.

    Args:
        network: The model with its caches.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self._network.config

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.config.vocab_size

    @property
    def max_context(self) -> int:
        """What the model reads, or what all blocks together hold where that is less."""
        return min(self.config.max_context, self.num_blocks * self.block_size)

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._network.cache.block_size

    @property
    def num_blocks(self) -> int:
        """Blocks there are."""
        return self._network.cache.num_blocks

    @property
    def num_slots(self) -> int:
        """Slots there are."""
        return self._network.cache.num_slots

    @property
    def block_bytes(self) -> int:
        """Memory of one block over all layers."""
        return self._network.block_bytes

    @property
    def slot_bytes(self) -> int:
        """Memory of one slot over all layers."""
        return self._network.slot_bytes

    def run(self, segments: Sequence[Segment]) -> Logits:
        """See `gossamer.engine.runner.Runner.run`.

        Raises:
            EngineError: a segment names what does not exist.
        """
        total = sum(len(s.token_ids) for s in segments)
        token_ids = np.fromiter((i for s in segments for i in s.token_ids), np.int64, total)
        spans = np.array(
            [[len(s.token_ids), s.start, s.slot, len(s.blocks), s.want_logits] for s in segments], np.int64
        ).reshape(-1, 5)
        try:
            return self._network.run(token_ids, spans, tables_of([s.blocks for s in segments]))
        except NetworkError as error:
            raise EngineError(str(error)) from None

    def clear_slot(self, slot: int) -> None:
        """See `gossamer.engine.runner.Runner.clear_slot`."""
        self._network.clear_slot(slot)

    def save_slot(self, slot: int) -> Snapshot:
        """See `gossamer.engine.runner.Runner.save_slot`."""
        return self._network.save_slot(slot)

    def restore_slot(self, slot: int, snapshot: Snapshot) -> None:
        """See `gossamer.engine.runner.Runner.restore_slot`."""
        self._network.restore_slot(slot, snapshot)

    def read_block(self, block: int) -> NDArray[np.uint8]:
        """The bytes of a block over all layers."""
        return self._network.read_block(block)

    def write_block(self, block: int, data: NDArray[np.uint8]) -> None:
        """Bring a block to saved bytes."""
        self._network.write_block(block, data)

    def expert_loads(self) -> NDArray[np.int64]:
        """See `gossamer.engine.runner.Runner.expert_loads`."""
        return self._network.expert_loads()


def open_folder(
    folder: Path,
    *,
    cache_bytes: int,
    num_slots: int,
    threads: int = 1,
    dtype: CacheType = "bf16",
    instructions: str | None = None,
) -> NativeRunner:
    """A runner over a folder that holds config.json and its checkpoint, whose files are mapped, not copied.

    Args:
        folder: In the published layout.
        cache_bytes: For blocks of latent KV and indexer keys; they take memory only once used.
        num_slots: Sequences at a time.
        threads: That compute.
        dtype: Of the blocks.
        instructions: A backend by name; None takes the best that runs here.

    Raises:
        ConfigError: config.json is missing or describes no model.
        CheckpointError: weights are missing or damaged.
        EngineError: cache_bytes does not hold one block.
    """
    # The arrays keep the maps alive; closing the reader only drops its own view of them.
    with CheckpointReader.open(folder) as reader:
        config = settled(hf.read(folder), reader)
        per_block = block_bytes(config, dtype)
        num_blocks = min(cache_bytes // per_block, -(-config.max_context * num_slots // BLOCK_SIZE))
        if num_blocks < 1:
            raise EngineError(
                f"a cache of {cache_bytes:,} bytes holds no block of {per_block:,}; give it more memory"
            )
        cache = CacheSize(block_size=BLOCK_SIZE, num_blocks=num_blocks, num_slots=num_slots, dtype=dtype)
        network = Network(
            config, from_checkpoint(config, reader), cache=cache, threads=threads, instructions=instructions
        )
    return NativeRunner(network)


def block_bytes(config: ModelConfig, dtype: CacheType, block_size: int = BLOCK_SIZE) -> int:
    """Bytes of one block over all full-attention layers; at least 1, so that one may divide by it."""
    item = 2 if dtype == "bf16" else 4
    latent = len(config.full_attention_layers) * config.mla.latent_width
    keys = 0 if config.dsa is None else len(config.dsa.layers) * config.dsa.head_dim
    return max(1, block_size * item * (latent + keys))
