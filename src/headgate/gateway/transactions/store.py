"""Transactions in PostgreSQL: the statements as calls. An outage of the database is one of the coordinator's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.append import Membership, Outcome
from headgate.commitlog.prepare import Batch
from headgate.gateway.cluster import PROTOCOL
from headgate.gateway.groups.store import Commit, Term
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.transactions.states import Change, Identity, Marker, State, Transactional
from headgate.postgres.statements import named_statements
from headgate.wire.kafka.batch import read_batch_header
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.markers import end_marker
from headgate.wire.kafka.refusal import Refused

__all__ = ["Ended", "TransactionStore"]

logger = logging.getLogger(__name__)

_REGEX_TIMEOUT = "1s"
_MOST_WRITING = 2

# The marker in a partition, and where that stands now.
Ended = tuple[int, Batch, Outcome]


class TransactionStore:
    """The statements, as calls."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        # They wait for the lock of the log, one after the other, and must leave connections to everybody else.
        self._writing = asyncio.Semaphore(_MOST_WRITING)

    async def find(self, transactional_id: str) -> Transactional | None:
        rows = await self._rows("find", transactional_id)
        return _transactional(rows[0]) if rows else None

    async def all(self, pattern: str | None = None) -> list[Transactional]:
        """Every transactional id, or those that match a regular expression as a whole."""
        try:
            async with self._connection() as connection, connection.transaction():
                await connection.execute(_sql("limit_time"), (_REGEX_TIMEOUT,))
                rows = await (await connection.execute(_sql("all"), (pattern, pattern))).fetchall()
        except (psycopg.errors.InvalidRegularExpression, psycopg.errors.QueryCanceled, psycopg.DataError) as error:
            text = error.diag.message_primary or "not a regular expression"
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
        return [_transactional(row) for row in rows]

    async def of_producer(self, producer_id: int) -> str | None:
        """The transactional id that has a producer id."""
        rows = await self._rows("of_producer", producer_id)
        return str(rows[0][0]) if rows else None

    async def new_producer_id(self) -> int:
        return int((await self._rows("new_producer_id"))[0][0])

    async def old_gateways(self) -> list[str]:
        """The addresses of living gateways that know nothing of transactions."""
        return [address for (address,) in await self._rows("old_gateways", PROTOCOL)]

    async def extend(self, known: Transactional, parts: Sequence[int], groups: Sequence[str]) -> bool:
        """Add to a transaction, or begin one; false if the state is no longer this one."""
        rows = await self._write("extend", known.transactional_id, known.version, list(parts), list(groups))
        return rows[0][0] is True

    async def change(self, transactional_id: str, known: Transactional | None, change: Change) -> list[Ended] | None:
        """Make a change; nothing if the state is no longer the one that it is a change of."""
        version = -1 if known is None else known.version
        if change.marker is not None:
            return await self._finish(transactional_id, version, change, change.marker)
        values = change.state, *change.identity, *change.last, change.timeout_ms, change.is_implicit
        rows = await self._write("change", transactional_id, version, *values)
        return [] if rows[0][0] is True else None

    async def _finish(self, transactional_id: str, version: int, change: Change, marker: Marker) -> list[Ended] | None:
        now_ms = time.time_ns() // 1_000_000
        data = end_marker(*marker.identity, committed=marker.is_commit, timestamp=now_ms)
        values = {
            "id": transactional_id,
            "version": version,
            "is_commit": marker.is_commit,
            "size": len(data),
            "marker_id": marker.identity.producer_id,
            "marker_epoch": marker.identity.epoch,
            "now_ms": now_ms,
            "marker": data,
            "state": change.state,
            "producer_id": change.identity.producer_id,
            "epoch": change.identity.epoch,
            "last_producer_id": change.last.producer_id,
            "last_epoch": change.last.epoch,
            "timeout_ms": change.timeout_ms,
            "is_implicit": change.is_implicit,
        }
        async with self._writing, self._connection() as connection:
            rows = await (await connection.execute(_sql("finish"), values)).fetchall()
        if not rows:
            return None
        batch = _batch(data)
        return [(part, batch, Outcome(ErrorCode.NONE, *places)) for part, *places in rows[1:]]

    async def pend(self, within: Membership, identity: Identity, term: Term, commits: Sequence[Commit]) -> ErrorCode:
        """Keep offsets of a group until a transaction ends."""
        rows = await self._write(
            "pend",
            within.transactional_id,
            *identity,
            term.group_id,
            term.epoch,
            within.may_join,
            [each.topic_id for each in commits],
            [each.partition for each in commits],
            [each.offset for each in commits],
            [each.leader_epoch for each in commits],
            [each.metadata.encode() for each in commits],
        )
        return ErrorCode(rows[0][0])

    async def overdue(self, connection: psycopg.AsyncConnection) -> list[tuple[str, int]]:
        """The transactional ids whose transactions have been open for too long, and the versions of their states."""
        rows = await (await connection.execute(_sql("overdue"))).fetchall()
        return [(transactional_id, version) for transactional_id, version in rows]

    async def open_in(self, part_id: int) -> dict[int, int]:
        """The first offset of every producer that writes to a partition in a transaction."""
        return dict(await self._rows("open_in", part_id, part_id))

    async def _write(self, name: str, *values: object) -> list[tuple[Any, ...]]:
        async with self._writing:
            return await self._rows(name, *values)

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
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the database does not answer") from error


def _transactional(row: tuple[Any, ...]) -> Transactional:
    name, version, producer_id, epoch, last_id, last_epoch, timeout_ms, state, is_implicit, started, parts, groups = row
    return Transactional(
        name,
        version,
        Identity(producer_id, epoch),
        Identity(last_id, last_epoch),
        timeout_ms,
        State(state),
        is_implicit,
        -1 if started is None else started,
        tuple(parts),
        tuple(groups),
    )


def _batch(data: bytes) -> Batch:
    header = read_batch_header(data)
    return Batch(
        data=memoryview(data),
        count=1,
        attributes=header.attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        positions=None,
        plain=None,
    )


def _sql(name: str) -> bytes:
    return named_statements(__package__)[name]
