"""Who is next: the highest priority, then the fairness key that has had the least, then the earliest.

Fairness counts tokens, as the virtual token counter of Sheng et al., "Fairness in Serving Large Language
Models" (OSDI 2024), does: each key pays for what it is served, and one that comes back starts no lower than
the least of those at work, so that time away is no credit.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter

from gossamer.engine.request import Request

OUTPUT_WEIGHT = 2
"""A generated token costs as much as this many prompt tokens, the weights of the paper."""


def _arrival(request: Request) -> int:
    return request.id


class FairQueue:
    """The requests that wait, and the account of what each fairness key was served.

    Args:
        aging_s: Seconds of age that count as one priority.  A request that waits long enough outranks all
            that come after it, so none waits forever.
    """

    def __init__(self, *, aging_s: float):
        self._aging_s = aging_s
        # (key, priority) -> waiting requests by arrival: the first of each is the only candidate.
        self._waiting: dict[tuple[str, int], list[Request]] = {}
        self._num_waiting = 0
        self._served: dict[str, int] = {}
        self._live: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._num_waiting

    def open(self, request: Request) -> None:
        """Open the account of a request that begins; `close` ends it."""
        key = request.options.fairness_key
        if not self._live[key]:
            least = min((self._served[k] for k, n in self._live.items() if n), default=0)
            self._served[key] = max(self._served.get(key, 0), least)
        self._live[key] += 1

    def close(self, request: Request) -> None:
        """Close the account of a request that has ended."""
        key = request.options.fairness_key
        self._live[key] -= 1
        if self._live[key]:
            return
        del self._live[key]
        # Who is above the least at work keeps that debt; the others would start at the least anyway.
        least = min((self._served[k] for k in self._live), default=None)
        self._served = {
            k: served
            for k, served in self._served.items()
            if k in self._live or (least is not None and served > least)
        }

    def charge(self, request: Request, num_computed: int) -> None:
        """Have its key pay for tokens up to ``num_computed``; what is computed again is free."""
        prompt, charged = request.num_prompt, request.num_charged
        if num_computed <= charged:
            return
        generated = max(num_computed - max(charged, prompt), 0)
        self._served[request.options.fairness_key] += num_computed - charged + (OUTPUT_WEIGHT - 1) * generated
        request.num_charged = num_computed

    def served(self, key: str) -> int:
        """What ``key`` has paid, in prompt tokens."""
        return self._served.get(key, 0)

    def push(self, request: Request) -> None:
        """Let a request wait, in the order of arrival within its key and priority."""
        lane = self._waiting.setdefault((request.options.fairness_key, request.options.priority), [])
        insort(lane, request, key=_arrival)
        self._num_waiting += 1

    def remove(self, request: Request) -> None:
        """Take out a request that waits."""
        name = (request.options.fairness_key, request.options.priority)
        lane = self._waiting[name]
        lane.remove(request)
        if not lane:
            del self._waiting[name]
        self._num_waiting -= 1

    def head(self, now_s: float) -> Request | None:
        """The request to admit next, or None; it stays in the queue."""
        heads = (lane[0] for lane in self._waiting.values())
        return min(heads, key=lambda request: self.turn(request, now_s), default=None)

    def level(self, request: Request, now_s: float) -> int:
        """Priority, raised by age."""
        return request.options.priority + int((now_s - request.arrival_s) / self._aging_s)

    def turn(self, request: Request, now_s: float) -> tuple[int, int, int]:
        """Sort key for work that can be shared fairly; the least is next."""
        return -self.level(request, now_s), self._served[request.options.fairness_key], request.id

    def urgency(self, request: Request, now_s: float) -> tuple[int, int]:
        """Sort key for memory: the greatest, of low priority or late arrival, is preempted first."""
        return -self.level(request, now_s), request.id

    def waiting(self) -> list[Request]:
        """All that wait, in no order."""
        return [request for lane in self._waiting.values() for request in lane]

    def keys(self) -> dict[str, int]:
        """Fairness key -> requests with an open account."""
        return dict(self._live)
