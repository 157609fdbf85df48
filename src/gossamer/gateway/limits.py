"""What each key may take at a time and per minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.gateway.keys import ApiKey
from gossamer.protocol.errors import ApiError

BUSY_RETRY_S = 1
"""How long a key waits that has as many requests in flight as it may: nobody knows when one ends."""


@dataclass
class _Account:
    """One key's use.  ``tokens`` may be below 0: what an answer took is known only at its end."""

    tokens: float
    filled_s: float
    running: int = 0


@dataclass
class Limiter:
    """Counts each key's requests in flight and its tokens, in a bucket that holds one minute's worth.

    A request is admitted while the bucket is not empty and pays when it has ended, so that nobody pays for
    tokens that were never generated; one that takes more than was there is followed by a longer wait.  Used
    from one event loop.
    """

    clock: Callable[[], float] = time.monotonic
    _accounts: dict[str, _Account] = field(default_factory=dict)

    def enter(self, key: ApiKey) -> Lease:
        """Admit one request of a key.

        Raises:
            ApiError: 429, it has to wait.
        """
        account = self._account(key)
        if key.max_concurrent is not None and account.running >= key.max_concurrent:
            raise _too_many(
                f"this key has {account.running} requests in flight and may have {key.max_concurrent} at a "
                "time; try again when one has ended",
                code="concurrency_limit_exceeded",
                retry_after_s=BUSY_RETRY_S,
            )
        if key.tokens_per_minute is not None and account.tokens <= 0:
            # Until there is one whole token again.
            wait = math.ceil((1 - account.tokens) * 60 / key.tokens_per_minute)
            raise _too_many(
                f"this key has used its {key.tokens_per_minute} tokens per minute; try again in {wait} s",
                code="token_limit_exceeded",
                retry_after_s=wait,
            )
        account.running += 1
        return Lease(account)

    def _account(self, key: ApiKey) -> _Account:
        now, rate = self.clock(), key.tokens_per_minute or 0
        account = self._accounts.setdefault(key.id, _Account(tokens=rate, filled_s=now))
        account.tokens = min(rate, account.tokens + (now - account.filled_s) * rate / 60)
        account.filled_s = now
        return account


class Lease:
    """One request of a key, from its admission to its end."""

    def __init__(self, account: _Account):
        self._account = account
        self._ended = False

    def end(self, num_tokens: int) -> None:
        """Give the place back and pay; further calls do nothing."""
        if not self._ended:
            self._ended = True
            self._account.running -= 1
            self._account.tokens -= num_tokens


def _too_many(message: str, *, code: str, retry_after_s: int) -> ApiError:
    return ApiError(
        message, status=429, type="rate_limit_reached_error", code=code, retry_after_s=retry_after_s
    )
