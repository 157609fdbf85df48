"""Numbered things that several holders may share: blocks of latent KV, and slots of KDA state."""

from __future__ import annotations

from collections.abc import Mapping

from gossamer.engine.api import EngineError


class IntegrityError(EngineError):
    """The engine's books contradict each other.  A fault of gossamer, never of the user."""


class BlockPool:
    """Ids 0 .. size-1, each free or held by one holder or more.

    Args:
        size: How many there are; at least 1.
        name: What one of them is called in messages.

    Raises:
        EngineError: ``size`` is below 1.
    """

    def __init__(self, size: int, *, name: str = "block"):
        if size < 1:
            raise EngineError(f"the runner has {size} {name}s; it needs at least 1: give it more memory")
        self._name = name
        self._holders = [0] * size
        # The last one released is the next one taken: its memory is the likeliest to be in a cache.
        self._free = list(range(size - 1, -1, -1))

    @property
    def size(self) -> int:
        """How many there are, free ones included."""
        return len(self._holders)

    @property
    def num_free(self) -> int:
        """How many nobody holds."""
        return len(self._free)

    def num_holders(self, block: int) -> int:
        """How many hold ``block``; 0 where it is free."""
        return self._holders[block]

    def take(self) -> int:
        """A free block, held once.

        Raises:
            IntegrityError: none is free; the caller looks at `num_free` first.
        """
        if not self._free:
            raise IntegrityError(f"all {self.size} {self._name}s are held; this is a bug, please report it")
        block = self._free.pop()
        self._holders[block] = 1
        return block

    def share(self, block: int) -> int:
        """One more holder of a held block; returns ``block``.

        Raises:
            IntegrityError: nobody holds it.
        """
        if self._holders[block] < 1:
            raise IntegrityError(f"{self._name} {block} is free and cannot be shared; this is a bug")
        self._holders[block] += 1
        return block

    def release(self, block: int) -> bool:
        """One holder fewer; whether the block is free now.

        Raises:
            IntegrityError: nobody holds it.
        """
        if self._holders[block] < 1:
            raise IntegrityError(f"{self._name} {block} is released twice; this is a bug")
        self._holders[block] -= 1
        if self._holders[block]:
            return False
        self._free.append(block)
        return True

    def check_integrity(self, expected: Mapping[int, int]) -> None:
        """Compare with the holders that are known.

        Args:
            expected: Block -> number of holders, for all that are held.

        Raises:
            IntegrityError: naming the first block that differs.
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise IntegrityError(f"a {self._name} is in the free list twice: {sorted(self._free)}")
        for block, holders in enumerate(self._holders):
            if (holders == 0) != (block in free):
                raise IntegrityError(
                    f"{self._name} {block} has {holders} holders, free list: {block in free}"
                )
            if holders != expected.get(block, 0):
                raise IntegrityError(
                    f"{self._name} {block} counts {holders} holders, {expected.get(block, 0)} are known"
                )
