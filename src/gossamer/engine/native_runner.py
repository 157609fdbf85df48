"""The native network as the engine core's `Runner`.

Shapes: V vocabulary, R rows whose logits are wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gossamer.checkpoint import CheckpointReader
from gossamer.config import hf
from gossamer.config.model import ModelConfig
from gossamer.engine.api import EngineError, Logits
from gossamer.engine.runner import Segment, Snapshot
from gossamer.kernels import backend
from gossamer.kernels.cache_rows import CacheType, StateType, block_bytes, slot_bytes
from gossamer.kernels.network import CacheSize, Given, Network, NetworkError, Precision, tables_of
from gossamer.kernels.plain_network import PlainNetwork
from gossamer.kernels.weights import Weight, from_checkpoint, settled

LOG = logging.getLogger("gossamer.engine")
BLOCK_SIZE = 64


class NativeRunner:
    """See `gossamer.engine.runner.Runner`.

    Args:
        network: The model with its caches.
    """

    def __init__(self, network: Network | PlainNetwork) -> None:
        self._network = network
        self._loads = network.expert_loads()

    @property
    def config(self) -> ModelConfig:
        """The architecture."""
        return self._network.config

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.config.vocab_size

    @property
    def hidden_size(self) -> int:
        """D."""
        return self.config.hidden_size

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
            return self._network.run(
                token_ids, spans, tables_of([s.blocks for s in segments]), _given(segments)
            )
        except NetworkError as error:
            raise EngineError(str(error)) from None
        finally:
            # The network counts while it computes, in the thread that runs it; others see whole steps only.
            self._loads = self._network.expert_loads()

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
        """See `gossamer.engine.runner.Runner.expert_loads`; as they were after the latest step.

        Usable from any thread.  Not to be written to.
        """
        return self._loads


def _given(segments: Sequence[Segment]) -> Given | None:
    """The embeddings of all segments by their row of the pass."""
    rows, values, first = [], [], 0
    for segment in segments:
        for place, some in segment.embeddings:
            rows.append(np.arange(first + place, first + place + len(some)))
            values.append(some)
        first += len(segment.token_ids)
    return Given(rows=np.concatenate(rows), values=np.concatenate(values)) if rows else None


def fit(
    config: ModelConfig,
    *,
    memory_bytes: int,
    max_sequences: int,
    dtype: CacheType = "bf16",
    state: StateType = "f32",
) -> CacheSize:
    """Caches that fit some memory: state for as many sequences as half of it holds, blocks in the rest.

    Args:
        config: The architecture.
        memory_bytes: For both; it is only taken once used.
        max_sequences: Most sequences at a time.
        dtype: Of latent KV and indexer keys.
        state: Of KDA state and convolution tails.

    Raises:
        EngineError: it does not hold one sequence of one block.
    """
    slot = slot_bytes(config, state)
    block = block_bytes(config, dtype, BLOCK_SIZE)
    slots = max(1, min(max_sequences, memory_bytes // 2 // slot))
    blocks = min((memory_bytes - slots * slot) // block, -(-config.max_context // BLOCK_SIZE) * slots)
    if blocks < 1:
        raise EngineError(
            f"{memory_bytes:,} bytes do not hold the state of one sequence ({slot:,} bytes) and one block "
            f"of {BLOCK_SIZE} tokens ({block:,}); give the caches more memory"
        )
    return CacheSize(block_size=BLOCK_SIZE, num_blocks=blocks, num_slots=slots, dtype=dtype, state=state)


def build(
    config: ModelConfig,
    weights: Iterable[Weight],
    *,
    cache: CacheSize,
    threads: int = 1,
    precision: Precision | None = None,
    instructions: str | None = None,
) -> NativeRunner:
    """A runner on the native kernels, or, with a warning in the log, on numpy where none are built.

    Raises:
        BackendError: `instructions` names a backend that is not there.
        NetworkError: a weight is missing or has another shape, or numpy is asked for a reduced precision.
    """
    wanted = precision or Precision()
    if instructions is None and not backend.available():
        LOG.warning("the native kernels are not built: computing in numpy, hundreds of times slower")
        return NativeRunner(PlainNetwork(config, weights, cache=cache, precision=wanted))
    chosen = instructions or backend.available()[0]
    LOG.info(
        "computing on %s kernels with %d threads, activations %s, trunk %s, cache %s, state %s",
        chosen,
        threads,
        wanted.activations,
        wanted.trunk,
        cache.dtype,
        cache.state,
    )
    network = Network(config, weights, cache=cache, threads=threads, precision=wanted, instructions=chosen)
    return NativeRunner(network)


def open_folder(
    folder: Path,
    *,
    memory_bytes: int,
    max_sequences: int,
    threads: int = 1,
    dtype: CacheType = "bf16",
    state: StateType = "f32",
    precision: Precision | None = None,
    instructions: str | None = None,
) -> NativeRunner:
    """A runner over a folder that holds config.json and its checkpoint, whose files are mapped, not copied.

    Args:
        folder: In the published layout.
        memory_bytes: See `fit`.
        max_sequences: See `fit`.
        threads: That compute.
        dtype: See `fit`.
        state: See `fit`.
        precision: See `gossamer.kernels.network.Precision`.
        instructions: A backend by name; None takes the best that runs here.

    Raises:
        ConfigError: config.json is missing or describes no model.
        CheckpointError: weights are missing or damaged.
        EngineError: memory_bytes is too little.
    """
    # The arrays keep the maps alive; closing the reader only drops its own view of them.
    with CheckpointReader.open(folder) as reader:
        config = settled(hf.read(folder), reader)
        cache = fit(config, memory_bytes=memory_bytes, max_sequences=max_sequences, dtype=dtype, state=state)
        weights = from_checkpoint(config, reader)
        return build(
            config, weights, cache=cache, threads=threads, precision=precision, instructions=instructions
        )
