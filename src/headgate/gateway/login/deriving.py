"""Passwords that must be derived before they can be compared: beside the event loop, and fairly.

A derivation takes milliseconds of a core. Few run at a time, and one for each address: whoever sends a thousand waits
for himself. Too many of one address are refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

from headgate.gateway.login.keys import Keys, salted

__all__ = ["Derivation", "TooManyError"]

_THREADS = 1  # the other cores are for those who are logged in
MOST_WAITING = 32  # of one address


class TooManyError(TimeoutError):
    """Others of the same address wait already; the client tries again."""


class Derivation:
    """Compares passwords with keys."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "headgate gateway login")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    async def fits(self, keys: Keys, password: str, address: str) -> bool:
        """Whether the keys are those of the password. Raises TooManyError."""
        if self._waiting[address] >= MOST_WAITING:
            raise TooManyError(f"{address} logs in too often at a time")
        self._waiting[address] += 1
        try:
            async with self._turns[address]:
                return await asyncio.get_running_loop().run_in_executor(self._threads, _fits, keys, password)
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address], self._turns[address]

    def close(self) -> None:
        """End the threads; what waits for them is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _fits(keys: Keys, password: str) -> bool:
    return keys.fit(salted(keys.mechanism, password, keys.salt, keys.iterations))
