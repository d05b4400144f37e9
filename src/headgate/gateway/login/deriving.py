"""Turns of those who log in: what takes time is done for one at a time of each address, and passwords beside the loop.

A password takes milliseconds of a core, a look at the database a connection that others need, too. Whoever sends a
thousand logins waits for himself, and others between them; too many of one address are refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from headgate.gateway.login.keys import Keys, salted

__all__ = ["MOST_WAITING", "Derivation", "TooManyError", "Turns"]

_THREADS = 1  # the other cores are for those who are logged in
MOST_WAITING = 256  # of one address


class TooManyError(TimeoutError):
    """Others of the same address wait already; the client tries again."""


class Turns:
    """One at a time of each address."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Wait until it is an address's turn. Raises TooManyError."""
        if self._waiting[address] >= MOST_WAITING:
            raise TooManyError(f"{address} logs in too often at a time")
        self._waiting[address] += 1
        try:
            async with self._turns[address]:
                yield
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address], self._turns[address]


class Derivation:
    """Compares passwords with keys, in a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "headgate gateway login")

    async def fits(self, keys: Keys, password: str) -> bool:
        """Whether the keys are those of the password."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _fits, keys, password)

    def close(self) -> None:
        """End the threads; what waits for them is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _fits(keys: Keys, password: str) -> bool:
    return keys.fit(salted(keys.mechanism, password, keys.salt, keys.iterations))
