"""When which request has to be ended."""

from __future__ import annotations

import heapq


class Deadlines:
    """The clocks at which live requests run out of time; those of requests that have ended are let go."""

    def __init__(self) -> None:
        self._live: dict[int, float] = {}
        # Entries of ended requests stay until they are most of it, so that dropping one costs constant time.
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Entries kept, at most twice the live ones and one."""
        return len(self._heap)

    def add(self, request_id: int, deadline_s: float) -> None:
        """End a request that has no deadline here once the clock reads ``deadline_s``."""
        self._live[request_id] = deadline_s
        heapq.heappush(self._heap, (deadline_s, request_id))

    def forget(self, request_id: int) -> None:
        """A request has ended, whether it had a deadline or not."""
        if self._live.pop(request_id, None) is not None and len(self._heap) > 2 * len(self._live) + 1:
            self._heap = [(deadline_s, i) for i, deadline_s in self._live.items()]
            heapq.heapify(self._heap)

    def due(self, now_s: float) -> list[int]:
        """The requests whose deadline has passed, earliest first; each is named once."""
        found = []
        while self._heap and self._heap[0][0] <= now_s:
            deadline_s, request_id = heapq.heappop(self._heap)
            # An id may have been given again after its request had ended.
            if self._live.get(request_id) == deadline_s:
                del self._live[request_id]
                found.append(request_id)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._live.clear()
        self._heap.clear()
