"""Authority that decides what a client may do: nobody, the ACLs, or PostgreSQL's roles.

Decisions are made in memory. What they rest on was read from PostgreSQL `STALE_S` seconds ago at most: a notification
tells of changes at once, the listener looks once a second in case one was lost, and if that has not worked for so long
the next decision reads anew, and waits. If PostgreSQL does not answer there is no decision, and nothing is allowed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Protocol

import psycopg

from headgate.gateway.access.acls import Acl, Kind, Operation, Rules
from headgate.gateway.access.store import Pool, read, sql
from headgate.gateway.principal import Principal

__all__ = ["ACCESS_CHANNEL", "STALE_S", "AclAuthority", "Authority", "Open"]

logger = logging.getLogger(__name__)

ACCESS_CHANNEL = "kafka_access"
STALE_S = 5.0


class Authority(Protocol):
    """Says what clients may do. Asked about names, of which it returns those for which the answer is yes."""

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""

    @property
    def state(self) -> object:
        """Something that is another thing as soon as an answer may be another one."""

    @property
    def strange_rows(self) -> int:
        """Return how many rights are written in a way that it does not understand."""

    async def allowed(
        self, who: Principal, host: str, operation: Operation, kind: Kind, names: Collection[str]
    ) -> Collection[str]:
        """Return the names for which a client at an address may do something."""

    async def writes_somewhere(self, who: Principal, host: str) -> bool:
        """Tell whether there may be a topic to which a client may write."""


class Open:
    """Authority that lets everybody do everything, who is let in."""

    is_open = True
    state: object = None
    strange_rows = 0

    async def allowed(
        self, who: Principal, host: str, operation: Operation, kind: Kind, names: Collection[str]
    ) -> Collection[str]:
        """Return all of them."""
        return names

    async def writes_somewhere(self, who: Principal, host: str) -> bool:
        """Tell that there is one."""
        return True


class AclAuthority:
    """Decides by `kafka.acls`."""

    is_open = False

    def __init__(
        self,
        pool: Pool,
        superusers: Collection[str] = (),
        *,
        allows_unnamed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._superusers = superusers
        self._allows_unnamed = allows_unnamed
        self._clock = clock
        self._version: int | None = None
        self._read_at = float("-inf")
        self._doubts = 0
        self._reading = asyncio.Lock()
        self._renewing = asyncio.Lock()
        self._rules = self._ruled([])
        self.strange_rows = 0

    @property
    def state(self) -> object:
        """Return the rules: others replace them when ACLs change."""
        return self._rules

    async def allowed(
        self, who: Principal, host: str, operation: Operation, kind: Kind, names: Collection[str]
    ) -> Collection[str]:
        """Return the names for which a client at an address may do something."""
        rules = await self._fresh()
        principal = str(who)
        return {name for name in names if rules.allows(principal, host, operation, kind, name)}

    async def writes_somewhere(self, who: Principal, host: str) -> bool:
        """Tell whether there may be a topic to which a client may write."""
        return (await self._fresh()).allows_some(str(who), host, Operation.WRITE, Kind.TOPIC)

    async def refresh(self) -> None:
        """Read the ACLs if they have changed."""
        async with self._pool.connection() as connection:
            await self.refresh_on(connection)

    async def refresh_on(self, connection: psycopg.AsyncConnection) -> None:
        """Read the ACLs on a connection if they have changed: what was changed before the call counts after it."""
        async with self._reading:
            began, doubts = self._clock(), self._doubts
            row = await (await connection.execute(sql("version"))).fetchone()
            version = row[0] if row else None
            if version is None or version != self._version:
                # The version was read first: what is newer will be read once more, and nothing is missed.
                acls, self.strange_rows = await read(connection)
                self._rules, self._version = self._ruled(acls), version
            if doubts == self._doubts:
                self._read_at = began

    def doubt(self) -> None:
        """Have the next decision read anew, whatever the version: the database may be another one than before."""
        self._doubts += 1
        self._version, self._read_at = None, float("-inf")

    async def _fresh(self) -> Rules:
        if self._is_stale:
            async with self._renewing:  # one asks, the others wait for it
                if self._is_stale:
                    await self.refresh()
        return self._rules

    @property
    def _is_stale(self) -> bool:
        return self._clock() - self._read_at > STALE_S

    def _ruled(self, acls: Collection[Acl]) -> Rules:
        return Rules(acls, superusers=self._superusers, allows_unnamed=self._allows_unnamed)
