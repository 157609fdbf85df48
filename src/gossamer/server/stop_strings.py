"""Ends text at a stop string without ever letting a part of one through."""

from __future__ import annotations

from collections.abc import Sequence


class StopScanner:
    """Feed text in any pieces; what comes out does not depend on where it was cut.

    The stop string that is completed first wins; of two completed by the same character, the longer.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = tuple(stops)
        self._held = ""
        self.hit: str | None = None
        """The stop string that was met."""

    def feed(self, text: str) -> str:
        """Text that can be shown now; empty after a hit."""
        if self.hit is not None or not self._stops:
            return text if self.hit is None else ""
        self._held += text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            _, at, self.hit = min(ends)
            shown, self._held = self._held[:at], ""
            return shown
        keep = self._longest_beginning()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def flush(self) -> str:
        """The text held back so far: nothing follows that could complete a stop string."""
        shown, self._held = self._held, ""
        return shown

    def _longest_beginning(self) -> int:
        """Length of the longest tail of the held text that a stop string begins with."""
        longest = min(len(self._held), max(len(stop) for stop in self._stops) - 1)
        for size in range(longest, 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0
