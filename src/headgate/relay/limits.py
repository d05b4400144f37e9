"""Budgets that wait: a host that sends too much, or what costs too much, is read more slowly, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Buckets", "HostBudget", "host_rates"]

_HOUR_S, _DAY_S = 3_600.0, 86_400.0
_TRUSTED_PER_S = 5_000.0
_TRUSTED_BYTES = 32  # times as much as others
_TRUSTED_CPU = 10
_BURST_BYTES_S = 16.0  # seconds of the rate that may come at once: 16 MiB, so that the largest frames pass
_BURST_CPU_S = 20.0


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

    def take(self, count: float = 1) -> float:
        now = self._clock()
        elapsed, self._at = now - self._at, now
        wait_s = 0.0
        for bucket in self._buckets:
            level, size, per_s = bucket
            bucket[0] = level = min(size, level + elapsed * per_s) - count
            if level < 0:
                wait_s = max(wait_s, -level / per_s)
        return wait_s


class HostBudget:
    """What one host may have of the relay: messages, bytes, and the time that it takes to validate them.

    Every message counts, also one that is repeated, is no frame, or means nothing. `take` says how long to wait before
    the message is looked at. The time of validation is known only afterwards: `spend` charges it, and nothing more of
    the host is validated before `debt_s` is over.
    """

    def __init__(
        self,
        messages: tuple[tuple[float, float], ...],
        *,
        bytes_per_s: float,
        cpu_share: float,
        trusted: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        bytes_per_s *= _TRUSTED_BYTES if trusted else 1
        cpu_share *= _TRUSTED_CPU if trusted else 1
        self._messages = Buckets(messages, clock)
        self._bytes = Buckets(((bytes_per_s * _BURST_BYTES_S, _BURST_BYTES_S),), clock)
        self._cpu = Buckets(((cpu_share * _BURST_CPU_S, _BURST_CPU_S),), clock)

    def take(self, size: int) -> float:
        return max(self._messages.take(), self._bytes.take(size))

    def spend(self, seconds: float) -> None:
        self._cpu.take(seconds)

    def debt_s(self) -> float:
        return self._cpu.take(0)
