"""Rates that wait: a host that sends too fast is read more slowly, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Buckets", "host_rates"]

_HOUR_S, _DAY_S = 3_600.0, 86_400.0
_TRUSTED_PER_S = 5_000.0


def host_rates(account_limit: int, *, trusted: bool) -> tuple[tuple[float, float], ...]:
    """What a host with so many accounts may send, as (events, seconds)."""
    if trusted:
        return ((_TRUSTED_PER_S, 1.0), (_TRUSTED_PER_S * _HOUR_S, _HOUR_S))
    return (
        (50 + account_limit / 1_000, 1.0),
        (2_500.0 + account_limit, _HOUR_S),
        (20_000.0 + 10 * account_limit, _DAY_S),
    )


class Buckets:
    """Token buckets, one per (events, seconds). An event takes a token of each, on credit if need be.

    `take` says how long to wait until the credit is paid back: the caller waits, then handles the event.
    """

    def __init__(self, rates: tuple[tuple[float, float], ...], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._buckets = [[size, size, size / seconds] for size, seconds in rates]  # level, size, per second

    def take(self, count: int = 1) -> float:
        now = self._clock()
        elapsed, self._at = now - self._at, now
        wait_s = 0.0
        for bucket in self._buckets:
            level, size, per_s = bucket
            bucket[0] = level = min(size, level + elapsed * per_s) - count
            if level < 0:
                wait_s = max(wait_s, -level / per_s)
        return wait_s
