"""Quotas in PostgreSQL: read and changed."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.gateway.quotas.limits import Entity, Metric
from headgate.postgres.statements import named_statements

__all__ = ["QuotaStore", "read_rows", "sql"]

Pool = AsyncConnectionPool[psycopg.AsyncConnection]
Row = tuple[str, str, str, float]


class QuotaStore:
    """The table `kafka.quotas`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def all(self) -> dict[Entity, dict[str, float]]:
        """Return the limits of every entity."""
        async with self._pool.connection() as connection:
            return by_entity(await read_rows(connection))

    async def change(self, entity: Entity, values: Mapping[Metric, float | None], made_by: str) -> None:
        """Set limits of an entity; None takes one away."""
        async with self._pool.connection() as connection, connection.transaction():
            await change_on(connection, entity, values, made_by)


async def change_on(
    connection: psycopg.AsyncConnection, entity: Entity, values: Mapping[Metric, float | None], made_by: str
) -> None:
    """Set limits of an entity on a connection; None takes one away."""
    gone = [str(key) for key, value in values.items() if value is None]
    await connection.execute(sql("remove"), [*entity, gone])
    for key, value in values.items():
        if value is not None:
            await connection.execute(sql("set"), [*entity, str(key), value, made_by])


def by_entity(rows: list[Row]) -> dict[Entity, dict[str, float]]:
    """Return the limits of each entity, by their names."""
    found: dict[Entity, dict[str, float]] = {}
    for user, client_id, key, value in rows:
        found.setdefault(Entity(user, client_id), {})[key] = value
    return found


async def read_rows(connection: psycopg.AsyncConnection) -> list[Row]:
    """Return all rows, in the order of their entities."""
    return await (await connection.execute(sql("all"))).fetchall()


def sql(name: str) -> bytes:
    """One statement."""
    return named_statements(__package__)[name]
