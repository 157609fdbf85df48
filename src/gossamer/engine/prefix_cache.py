"""Prefixes that later requests resume from: a radix of block hashes with saved KDA states at some edges.

A block of latent KV is of use only up to an edge whose recurrent state is saved, so every leaf of the tree
has one, and eviction removes a state together with the blocks that only it could make use of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.engine.block_pool import BlockPool, IntegrityError
from gossamer.engine.metrics import Metrics
from gossamer.engine.runner import Snapshot
from gossamer.engine.spill import BlockIO, SpillStore


@dataclass(frozen=True, kw_only=True)
class Match:
    """The longest prefix found: its blocks, each held once more for the caller, and the state after them."""

    blocks: list[int]
    snapshot: Snapshot | None


@dataclass(slots=True, eq=False)
class _Node:
    """One cached block.  ``snapshot`` is the state after it."""

    digest: bytes
    block: int
    parent: _Node | None
    num_children: int = 0
    snapshot: Snapshot | None = None


class PrefixCache:
    """See the module.

    A digest names a whole prefix (`BlockHasher`), so the tree is a table of nodes with parents.  `_edges`
    orders the nodes with a state by use, the oldest first; using one uses all above it afterwards, so
    whatever is below an edge is older than it, and the oldest edge is always a leaf.

    Args:
        pool: Where the blocks come from; the cache holds each of its own once.
        block_bytes: Of one block.
        snapshot_bytes: Of one state.
        max_bytes: Blocks and states together.
        metrics: Told of evictions.
        spill: Where evicted prefixes go.
        block_io: Copies blocks; needed with ``spill``.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        block_bytes: int,
        snapshot_bytes: int,
        max_bytes: int,
        metrics: Metrics,
        spill: SpillStore | None = None,
        block_io: BlockIO | None = None,
    ):
        assert (spill is None) == (block_io is None), "a spill needs a way to copy blocks"
        self._pool = pool
        self._block_bytes = block_bytes
        self._snapshot_bytes = snapshot_bytes
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._spill = spill
        self._block_io = block_io
        self._nodes: dict[bytes, _Node] = {}
        self._edges: OrderedDict[bytes, _Node] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Blocks and states together."""
        return len(self._nodes) * self._block_bytes + len(self._edges) * self._snapshot_bytes

    @property
    def num_blocks(self) -> int:
        """Blocks that the cache holds, some of them together with requests."""
        return len(self._nodes)

    @property
    def num_snapshots(self) -> int:
        """Edges that can be resumed from."""
        return len(self._edges)

    def num_evictable(self) -> int:
        """Blocks that nobody else holds: `evict_blocks` can free all of them."""
        return sum(self._pool.num_holders(node.block) == 1 for node in self._nodes.values())

    def resident(self, digests: Sequence[bytes]) -> tuple[int, int]:
        """Blocks of the longest prefix in memory, and how many of them only the cache holds."""
        depth = self._depth(digests)
        idle = sum(self._pool.num_holders(self._nodes[digest].block) == 1 for digest in digests[:depth])
        return depth, idle

    def has_snapshot(self, digest: bytes) -> bool:
        """Whether the prefix ``digest`` can be resumed from memory."""
        return digest in self._edges

    def acquire(self, digests: Sequence[bytes]) -> Match:
        """The longest prefix that can be resumed, brought back from disk if it is longer there.

        The caller releases the blocks.  What comes from disk takes free blocks, and evicts for them.
        """
        while True:
            depth = self._depth(digests)
            deeper = self._spilled_depth(digests)
            if deeper <= depth or not self._room_for(digests, deeper):
                break
            match = self._load(digests[:deeper])
            if match is not None:
                return match
        self.touch(digests[:depth])
        blocks = [self._pool.share(self._nodes[digest].block) for digest in digests[:depth]]
        return Match(blocks=blocks, snapshot=self._nodes[digests[depth - 1]].snapshot if depth else None)

    def insert(self, digests: Sequence[bytes], blocks: Sequence[int], snapshot: Snapshot | None) -> list[int]:
        """Keep a prefix and the state after it.

        Args:
            digests: Of all its blocks, at least one.
            blocks: Its blocks, held by the caller.
            snapshot: The state after the last; None where `has_snapshot`.

        Returns:
            The blocks the caller holds from now on: where the cache had the same block already, the
            caller's own copy is released for the cache's.
        """
        table, parent = [], None
        for digest, block in zip(digests, blocks, strict=True):
            node = self._nodes.get(digest)
            if node is None:
                node = self._nodes[digest] = _Node(digest, self._pool.share(block), parent)
                if parent is not None:
                    parent.num_children += 1
            elif node.block != block:
                self._pool.share(node.block)
                self._pool.release(block)
            table.append(node.block)
            parent = node
        assert parent is not None, "a prefix has at least one block"
        if parent.snapshot is None:
            assert snapshot is not None, "blocks without a state are of no use"
            parent.snapshot = snapshot
            self._edges[parent.digest] = parent
        self.touch(digests)
        while self.num_bytes > self._max_bytes:
            self._evict(next(iter(self._edges)))
        return table

    def touch(self, digests: Sequence[bytes]) -> None:
        """Count a prefix in memory as used now."""
        for digest in reversed(digests):
            if digest in self._edges:
                self._edges.move_to_end(digest)

    def evict_blocks(self, num_blocks: int) -> int:
        """Free ``num_blocks`` blocks or more, the ones unused for longest first; returns how many.

        Less only where nothing more can be freed.  A block that a request holds is no use to evict: with it
        the request holds all blocks above, so the first edge that none holds is a leaf.
        """
        freed = 0
        while freed < num_blocks:
            idle = (d for d, node in self._edges.items() if self._pool.num_holders(node.block) == 1)
            oldest = next(idle, None)
            if oldest is None:
                break
            freed += self._evict(oldest)
        return freed

    def evict_oldest(self) -> bool:
        """Drop the edge unused for longest, whoever holds its blocks; False where the cache is empty."""
        if not self._edges:
            return False
        self._evict(next(iter(self._edges)))
        return True

    def flush(self) -> None:
        """Write to the spill, if there is one, what is not in it, so that it survives a restart."""
        if self._spill is None:
            return
        written: set[bytes] = set()
        # Oldest first, and each before what is above it, as eviction would write them.
        for edge in self._edges.values():
            node: _Node | None = edge
            while node is not None and node.digest not in written:
                self._write(node)
                written.add(node.digest)
                node = node.parent

    def check_integrity(self) -> dict[int, int]:
        """Check the tree against itself.

        Returns:
            Block -> holders, which is 1 for each block of the cache.

        Raises:
            IntegrityError: naming what is wrong.
        """
        children = dict.fromkeys(self._nodes, 0)
        for digest, node in self._nodes.items():
            if node.digest != digest or (node.snapshot is not None) != (digest in self._edges):
                raise IntegrityError(
                    f"cached block {node.block} and the table of edges contradict each other"
                )
            if node.parent is not None:
                if self._nodes.get(node.parent.digest) is not node.parent:
                    raise IntegrityError(f"cached block {node.block} hangs on an evicted parent")
                children[node.parent.digest] += 1
        for digest, node in self._nodes.items():
            if node.num_children != children[digest]:
                raise IntegrityError(
                    f"cached block {node.block} counts {node.num_children} children, has {children[digest]}"
                )
            if not children[digest] and node.snapshot is None:
                raise IntegrityError(
                    f"cached block {node.block} is a leaf without a state: nobody can use it"
                )
        self._check_order()
        if self.num_bytes > self._max_bytes:
            raise IntegrityError(f"the prefix cache holds {self.num_bytes} bytes of {self._max_bytes}")
        holders = {node.block: 1 for node in self._nodes.values()}
        if len(holders) != len(self._nodes):
            raise IntegrityError("two cached prefixes share one block")
        return holders

    def _check_order(self) -> None:
        newer: set[bytes] = set()
        for digest, edge in reversed(self._edges.items()):
            above = edge.parent
            while above is not None:
                if above.snapshot is not None and above.digest not in newer:
                    raise IntegrityError(f"cached block {edge.block} is newer than an edge above it")
                above = above.parent
            newer.add(digest)

    def _depth(self, digests: Sequence[bytes]) -> int:
        depth = 0
        for index, digest in enumerate(digests):
            if digest not in self._nodes:
                break
            if digest in self._edges:
                depth = index + 1
        return depth

    def _evict(self, digest: bytes) -> int:
        """Drop one edge, a leaf, and the blocks nobody can resume with any more; returns blocks freed."""
        self._metrics.num_evictions += 1
        node: _Node | None = self._nodes[digest]
        self._write(self._nodes[digest])
        del self._edges[digest]
        self._nodes[digest].snapshot = None
        freed = 0
        while node is not None and node.snapshot is None and not node.num_children:
            self._write(node)
            del self._nodes[node.digest]
            freed += self._pool.release(node.block)
            node = node.parent
            if node is not None:
                node.num_children -= 1
        while self._spill is not None and node is not None:
            # What is above must not leave the disk before what was just written.
            self._spill.touch(node.digest, lasting=False)
            node = node.parent
        return freed

    def _write(self, node: _Node) -> None:
        if self._spill is None or self._block_io is None:
            return
        # The state first: what is written last is deleted last, and a state without its block is of no use.
        if node.snapshot is not None:
            self._spill.put(node.digest, "state", node.snapshot)
        if not self._spill.has(node.digest, "block"):
            self._spill.put(node.digest, "block", self._block_io.read_block(node.block))

    def _spilled_depth(self, digests: Sequence[bytes]) -> int:
        """Blocks of the longest prefix that memory and disk hold together."""
        depth = 0
        if self._spill is None:
            return depth
        for index, digest in enumerate(digests):
            if digest not in self._nodes and not self._spill.has(digest, "block"):
                break
            if digest in self._edges or self._spill.has(digest, "state"):
                depth = index + 1
        return depth

    def _room_for(self, digests: Sequence[bytes], depth: int) -> bool:
        held = [self._nodes[digest] for digest in digests[:depth] if digest in self._nodes]
        idle = sum(self._pool.num_holders(node.block) == 1 for node in held)
        return depth - len(held) <= self._pool.num_free + self.num_evictable() - idle

    def _load(self, digests: Sequence[bytes]) -> Match | None:
        """Bring a prefix back; None where a file is of no use, which is then forgotten."""
        assert self._spill is not None
        assert self._block_io is not None
        for digest in reversed(digests):
            self._spill.touch(digest)
        snapshot = self._spill.get(digests[-1], "state", self._snapshot_bytes)
        if snapshot is None:
            return None
        # Held before anything is evicted, so that eviction leaves them alone.
        table = [self._pool.share(self._nodes[digest].block) for digest in digests if digest in self._nodes]
        self.evict_blocks(len(digests) - len(table) - self._pool.num_free)
        for digest in digests[len(table) :]:
            data = self._spill.get(digest, "block", self._block_bytes)
            if data is None:
                for block in table:
                    self._pool.release(block)
                return None
            table.append(self._pool.take())
            self._block_io.write_block(table[-1], data)
        return Match(blocks=self.insert(digests, table, snapshot), snapshot=snapshot)
