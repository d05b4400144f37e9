"""The users of a gateway: those of the configuration, whom nobody can change, and those of PostgreSQL.

Users of the configuration are found in memory, and log in while the database is away. A stored user of the same name
counts for nothing. Stored users are looked up at each login and once more when its proof is right: whoever was removed
in between is not let in.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.gateway.login import store
from headgate.gateway.login.deriving import Derivation, Turns
from headgate.gateway.login.keys import ALGORITHMS, Keys, decoy, derive

__all__ = ["Users"]

_LOOKUPS = 2  # at a time: strangers must leave connections to those who are logged in
_LOOKUP_TIMEOUT_S = 10.0
_MOST_LOOKUPS = 10  # of one login


class Users:
    """Names and keys. Without a pool there are only those of the configuration."""

    def __init__(
        self, passwords: Mapping[str, str], pool: AsyncConnectionPool[psycopg.AsyncConnection] | None = None
    ) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}
        self._keys = {
            (mechanism, name): derive(mechanism, password)
            for mechanism in ALGORITHMS
            for name, password in passwords.items()
        }
        self._pool = pool
        self._secret = secrets.token_bytes(32)
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._derivation = Derivation()
        self._turns = Turns()
        self._changes = 0

    def changed(self) -> None:
        """Take note that stored users may have changed: what was looked up before counts no more."""
        self._changes += 1

    def is_configured(self, name: str) -> bool:
        """Whether a user is in the configuration."""
        return name in self._digests

    def is_password(self, name: str, password: str) -> bool:
        """Whether that is the password of a user of the configuration."""
        return hmac.compare_digest(_digest(password), self._digests.get(name, self._secret))

    async def proven(self, name: str, password: str, address: str) -> Keys | None:
        """Return the keys of a stored user whose password it is; takes as long for names that do not exist."""
        async with self._turns.of(address):
            found = next(iter(await self._stored(name)), None)
            keys = found or decoy(next(iter(ALGORITHMS)), name, self._secret)
            if not await self._derivation.fits(keys, password) or found is None:
                return None
            return found if await self.still(name, found) else None

    async def keys(self, mechanism: str, name: str, address: str) -> Keys:
        """Return what proves a password; for unknown names something stable that nothing matches."""
        if configured := self._keys.get((mechanism, name)):
            return configured
        async with self._turns.of(address):
            found = await self._stored(name)
        return next((keys for keys in found if keys.mechanism == mechanism), decoy(mechanism, name, self._secret))

    async def still(self, name: str, keys: Keys) -> bool:
        """Whether a user has these keys at this moment, and not only a moment ago.

        A change that commits while the answer is under way is heard of by `changed`, and the question asked again; one
        that is heard of later finds the client logged in, and ends its connection.
        """
        if name in self._digests:
            return self._keys[keys.mechanism, name] == keys
        for _ in range(_MOST_LOOKUPS):
            seen = self._changes
            is_there = keys in await self._stored(name)
            if seen == self._changes:
                return is_there
        raise TimeoutError("users change all the time")  # anybody may notify

    def close(self) -> None:
        """End its threads."""
        self._derivation.close()

    async def _stored(self, name: str) -> list[Keys]:
        if self._pool is None:
            return []
        async with asyncio.timeout(_LOOKUP_TIMEOUT_S), self.connection() as connection:
            return await store.find(connection, name)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        """Lend one of few connections."""
        assert self._pool is not None
        async with self._lookups, self._pool.connection() as connection:
            yield connection


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
