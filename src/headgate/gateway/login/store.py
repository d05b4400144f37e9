"""Users in PostgreSQL: the table `kafka.users`, read at every login, so that a change counts at once everywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import psycopg

from headgate.gateway.login.keys import Keys
from headgate.postgres.statements import named_statements

__all__ = ["USERS_CHANNEL", "Edit", "Stored", "alter", "everybody", "find", "remaining"]

logger = logging.getLogger(__name__)

USERS_CHANNEL = "kafka_users"


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of one user: mechanisms that go, and keys that come."""

    removed: Sequence[str] = ()
    keys: Sequence[Keys] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A row: the keys of a user for one mechanism; none if it is damaged."""

    name: str
    mechanism: str
    keys: Keys | None
    changed_at: datetime
    changed_by: str


async def find(connection: psycopg.AsyncConnection, name: str) -> list[Keys]:
    """Return the keys of a user. A row that is damaged counts as none, and is told in the log."""
    if "\0" in name:
        return []
    return [keys for keys in [_keys(name, row) for row in await _rows(connection, "find", name=name)] if keys]


async def everybody(connection: psycopg.AsyncConnection, names: Iterable[str] | None = None) -> list[Stored]:
    """Return the rows of all users, or of those of these names, in their order."""
    wanted = None if names is None else [name for name in names if "\0" not in name]
    rows = await _rows(connection, "everybody", names=wanted)
    return [Stored(name, row[0], _keys(name, row), at, by) for name, *row, at, by in rows]


async def remaining(connection: psycopg.AsyncConnection, logins: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of these pairs of name and mechanism that there still are."""
    names, mechanisms = zip(*logins, strict=True)
    return set(await _rows(connection, "remaining", names=list(names), mechanisms=list(mechanisms)))


async def alter(connection: psycopg.AsyncConnection, edits: Mapping[str, Edit], by: str) -> set[str]:
    """Make the edits in one transaction; returns the users who lack what is to be removed, and are left alone."""
    async with connection.transaction():
        there = set(await _rows(connection, "lock", names=list(edits)))
        missing = {name for name, edit in edits.items() if not there.issuperset((name, each) for each in edit.removed)}
        for name in sorted(edits.keys() - missing):
            if edits[name].removed:
                await connection.execute(_sql("remove"), {"name": name, "mechanisms": list(edits[name].removed)})
            for keys in edits[name].keys:
                await connection.execute(_sql("put"), {"name": name, "by": by, **asdict(keys)})
    return missing


async def _rows(connection: psycopg.AsyncConnection, statement: str, **values: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(_sql(statement), values)).fetchall()


def _keys(name: str, row: Sequence[Any]) -> Keys | None:
    try:
        keys = Keys(*row)
        if keys.is_sound:
            return keys
    except TypeError:  # a NULL, or another type of column
        pass
    logger.warning("a row of kafka.users is damaged; it lets nobody in", extra={"user": name, "mechanism": row[0]})
    return None


def _sql(name: str) -> bytes:
    return named_statements(__package__)[name]
