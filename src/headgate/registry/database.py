"""The connections of a registry, and the rows it reads.

Every statement names its tables in full and nothing is prepared, so a pooler such as PgBouncer may stand between.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from headgate.postgres import PromptConnection
from headgate.postgres.pool import make_pool
from headgate.registry.errors import RefusedError
from headgate.registry.statements import sql

__all__ = ["POOL_SIZE", "Database", "Reference", "StoredSchema", "Transaction", "Version"]

_log = logging.getLogger(__name__)

POOL_SIZE = 8
_WAIT_S = 10.0  # for a connection
_SETTINGS = "set local lock_timeout = '10s'; set local statement_timeout = '30s'"
FAILURES = (psycopg.Error, PoolTimeout)


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema calls another one, and which one that is."""

    name: str
    subject: str
    version: int

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A row of `schemas`, with what it refers to."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A row of `versions`."""

    number: int
    schema_id: int
    is_deleted: bool


class _Connection(PromptConnection):
    patience_s = 40.0


@dataclass(slots=True)
class Transaction:
    """Statements that see one state of the database, or change it together."""

    connection: psycopg.AsyncConnection[Any]

    async def rows(self, name: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        cursor = await self.connection.execute(sql(name), values or {})
        return await cursor.fetchall() if cursor.description else []

    async def lock(self) -> None:
        """Wait until nobody else writes."""
        await self.rows("lock")

    async def versions(self, subject: str) -> list[Version]:
        return [Version(*row) for row in await self.rows("versions", {"subject": subject})]

    async def schemas(self, ids: Sequence[int]) -> dict[int, StoredSchema]:
        rows = await self.rows("schemas_by_id", {"ids": list(set(ids))})
        return {
            number: StoredSchema(number, kind, body, tuple(Reference(**each) for each in references))
            for number, kind, body, references in rows
        }

    async def stamp(self, subject: str) -> tuple[str, str]:
        """Return what differs when something about a subject has changed."""
        ((versions, settings),) = await self.rows("stamp", {"subject": subject})
        return versions, settings


@dataclass(eq=False)
class Database:
    """A pool of connections to the database of a registry."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        self._pool = make_pool(
            _Connection, self.url, "headgate registry", size=POOL_SIZE, configure=_nothing, prepare_threshold=None,
            timeout_s=_WAIT_S,
        )  # fmt: skip

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def transaction(self, *, writes: bool = False) -> AsyncIterator[Transaction]:
        """Begin a transaction; one that reads sees one state throughout. Raises RefusedError without a database."""
        try:
            async with self._pool.connection() as connection, connection.transaction():
                begin = "" if writes else "set transaction isolation level repeatable read, read only; "
                await connection.execute((begin + _SETTINGS).encode())
                yield Transaction(connection)
        except FAILURES as error:
            _log.warning("the database does not answer: %s", error)  # which says more than strangers should read
            raise RefusedError(50001, f"Error in the backend data store: {type(error).__name__}") from error


async def _nothing(connection: psycopg.AsyncConnection[Any]) -> None:
    """Sessions are as the server makes them."""
