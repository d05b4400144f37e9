"""ACLs in PostgreSQL: read, added and removed."""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.gateway.access.acls import ANY_HOST, ANY_NAME, Acl, Kind, Operation, Pattern, Permission
from headgate.gateway.access.filters import AclFilter
from headgate.postgres.statements import named_statements

__all__ = ["AclStore", "read_row", "sql"]

logger = logging.getLogger(__name__)

_E = TypeVar("_E", bound=enum.Enum)

Pool = AsyncConnectionPool[psycopg.AsyncConnection]


class AclStore:
    """The table `kafka.acls`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def all(self) -> list[Acl]:
        """Return every ACL that can be understood, as it was written."""
        async with self._pool.connection() as connection:
            acls, _ = await read(connection)
        return acls

    async def add(self, acls: Sequence[Acl], made_by: str) -> None:
        """Add ACLs, all or none; one that is there already stays."""
        async with self._pool.connection() as connection:
            await connection.execute(sql("add_acls"), [made_by, *_columns(acls)])

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Remove what fits the filters, in one transaction. Returns what each has found."""
        async with self._pool.connection() as connection, connection.transaction():
            acls, _ = await read(connection)
            found = [[acl for acl in acls if each.fits(acl)] for each in filters]
            await connection.execute(sql("remove_acls"), _columns({acl for every in found for acl in every}))
        return found


async def read(connection: psycopg.AsyncConnection) -> tuple[list[Acl], int]:
    """Return all ACLs, what denies as `read_row` widens it, and the number of rows that are not understood."""
    cursor = await connection.execute(sql("acls"))
    acls: list[Acl] = []
    strange = 0
    for row in await cursor.fetchall():
        found, is_strange = read_row(row)
        acls += found
        strange += is_strange
    if strange:
        logger.warning("rows of kafka.acls are not understood: they allow nothing", extra={"rows": strange})
    return acls, strange


def read_row(row: Sequence[Any]) -> tuple[list[Acl], bool]:
    """Return the ACL of a row, and whether it is one that nobody could have written through a gateway.

    A row that cannot be understood allows nothing. If it may be one that denies it denies all that it could mean: what
    somebody meant to forbid must not be open because of a typing error.
    """
    try:
        kind, pattern, name, principal, host, operation, permission = row
        return [
            Acl(Kind[kind], Pattern[pattern], name, principal, host, Operation[operation], Permission[permission])
        ], False
    except KeyError:
        pass
    if permission == Permission.ALLOW.name:
        return [], True
    kinds = [Kind[kind]] if kind in Kind.__members__ else list(Kind)
    wide = _member(Pattern, pattern, Pattern.LITERAL if name == ANY_NAME else Pattern.PREFIXED)
    what = _member(Operation, operation, Operation.ALL)
    return [Acl(each, wide, name, principal, host or ANY_HOST, what, Permission.DENY) for each in kinds], True


def _member(values: type[_E], name: str, otherwise: _E) -> _E:
    return values.__members__.get(name, otherwise)


def _columns(acls: Iterable[Acl]) -> list[list[str]]:
    """The columns of the table, each as an array."""
    rows = [(a.kind.name, a.pattern.name, *a[2:5], a.operation.name, a.permission.name) for a in acls]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * len(Acl._fields)


def sql(name: str) -> bytes:
    """One statement."""
    return named_statements(__package__)[name]
