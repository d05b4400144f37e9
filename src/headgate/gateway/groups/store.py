"""Groups in PostgreSQL: leases, state, offsets. What every write has to prove is in `statements.sql`.

An outage of the database becomes `NOT_COORDINATOR` here: clients then look for the coordinator again, and go on asking
until somebody can answer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.gateway.groups.group import Changes, Stored
from headgate.gateway.outage import NO_DATABASE
from headgate.postgres.statements import named_statements
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Commit", "Committed", "GroupStore", "Listed", "Place", "Term"]

logger = logging.getLogger(__name__)

_REGEX_TIMEOUT = "1s"


@dataclass(frozen=True, slots=True)
class Place:
    """The coordinator of a group, if there is one, and whether the group is stored."""

    node_id: int | None
    host: str
    port: int
    instance: UUID | None
    exists: bool


@dataclass(frozen=True, slots=True)
class Term:
    """A coordinator's time in office, for one group."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset to store."""

    topic_id: int
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that is stored; -1 if there is none but that of an open transaction."""

    topic: UUID
    name: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    is_stable: bool  # no open transaction will replace it


@dataclass(frozen=True, slots=True)
class Listed:
    """A group in a list; `node_id` is its living coordinator."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    node_id: int | None


class GroupStore:
    """The statements, as calls."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool

    async def claim(self, group_id: str, node_id: int, instance: UUID) -> Term | None:
        """A new term as coordinator, if the group has no other one that lives."""
        rows = await self._rows("claim", group_id, node_id, instance)
        return Term(group_id, rows[0][0]) if rows else None

    async def release(self, instance: UUID) -> None:
        """End all terms of a gateway."""
        async with self._connection() as connection:
            await connection.execute(_sql("release"), (instance,))

    async def place(self, group_id: str) -> Place:
        (row,) = await self._rows("holder", group_id, group_id)
        return Place(*row)

    async def epochs(self, group_ids: Sequence[str]) -> dict[str, int]:
        """The present terms of groups."""
        return dict(await self._rows("epochs", list(group_ids)))

    async def load(self, group_id: str) -> Stored | None:
        rows = await self._rows("load", group_id)
        if not rows:
            return None
        kind, head, members = rows[0]
        return Stored(kind, head.encode(), [member.encode() for member in members])

    async def save(self, term: Term, changes: Changes) -> bool:
        """Store what changed; false if the term is over."""
        rows = list(changes.members.values())
        values = {
            "group_id": term.group_id,
            "epoch": term.epoch,
            "kind": changes.kind,
            "state": changes.state,
            "protocol_type": changes.protocol_type,
            "generation": changes.generation,
            "head": changes.head.decode(),
            "gone": changes.gone,
            "members": list(changes.members),
            "instances": [instance for instance, _, _, _ in rows],
            "clients": [client for _, client, _, _ in rows],
            "hosts": [host for _, _, host, _ in rows],
            "bodies": [body.decode() for _, _, _, body in rows],
        }
        async with self._connection() as connection:
            row = await (await connection.execute(_sql("save"), values)).fetchone()
        return row == (True,)

    async def commit(self, commits: Iterable[tuple[Term, Commit]]) -> set[Term]:
        """Store offsets of several groups at once; the terms that still run are the ones whose offsets are stored."""
        # The last one counts: a row can be written only once in a statement.
        last = {(term, each.topic_id, each.partition): each for term, each in commits}
        terms = {term for term, _, _ in last}
        rows = await self._rows(
            "commit",
            [term.group_id for term in terms],
            [term.epoch for term in terms],
            [term.group_id for term, _, _ in last],
            [term.epoch for term, _, _ in last],
            [each.topic_id for each in last.values()],
            [each.partition for each in last.values()],
            [each.offset for each in last.values()],
            [each.leader_epoch for each in last.values()],
            [each.metadata.encode() for each in last.values()],
        )
        return {Term(*row) for row in rows}

    async def offsets(self, group_id: str) -> list[Committed]:
        """All offsets of a group, by topic and partition."""
        rows = await self._rows("offsets", group_id, group_id)
        return [Committed(*(*row[:5], row[5].decode(), row[6])) for row in rows]

    async def delete_offsets(self, term: Term, partitions: Sequence[tuple[int, int]]) -> bool:
        """Forget offsets, by topic id and partition; false if the term is over."""
        topics, indexes = [topic for topic, _ in partitions], [index for _, index in partitions]
        return (await self._rows("delete_offsets", term.group_id, term.epoch, topics, indexes))[0][0] is True

    async def delete(self, term: Term) -> bool:
        """Forget a group; false if the term is over."""
        return (await self._rows("delete", term.group_id, term.epoch))[0][0] is True

    async def forget(self, terms: Sequence[Term]) -> None:
        """End terms for groups that were never stored."""
        async with self._connection() as connection:
            await connection.execute(
                _sql("forget"), ([term.group_id for term in terms], [term.epoch for term in terms])
            )

    async def all(self) -> list[Listed]:
        return [Listed(*row) for row in await self._rows("all")]

    async def expire(self, retention_s: float, grace_s: float) -> int:
        """Forget what nobody needs; how many groups went."""
        expired = (await self._rows("expire", f"{retention_s} seconds", f"{grace_s} seconds"))[0][0]
        return int(expired)

    async def matches(self, regex: str) -> frozenset[str]:
        """The topics whose whole name matches. PostgreSQL looks for them, and not for long."""
        try:
            async with self._connection() as connection, connection.transaction():
                await connection.execute(_sql("limit_time"), (_REGEX_TIMEOUT,))
                rows = await (await connection.execute(_sql("matches"), (regex,))).fetchall()
        except (psycopg.errors.InvalidRegularExpression, psycopg.errors.QueryCanceled, psycopg.DataError) as error:
            text = error.diag.message_primary or "not a regular expression"
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
        return frozenset(name for (name,) in rows)

    async def _rows(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        async with self._connection() as connection:
            return await (await connection.execute(_sql(name), values)).fetchall()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection]:
        try:
            async with self._pool.connection() as connection:
                yield connection
        except psycopg.errors.QueryCanceled:
            raise
        except NO_DATABASE as error:
            logger.warning("the database does not answer", extra={"why": str(error)})
            raise Refused(ErrorCode.NOT_COORDINATOR, "the database does not answer") from error


def _sql(name: str) -> bytes:
    return named_statements(__package__)[name]
