"""Group commit: one task, one connection, and everything that waits goes into the log with the next commit.

If the connection breaks during a commit, nobody knows whether it happened. Idempotent batches are sent again, since a
second arrival is recognised; the producers of all others are told to try again, and decide for themselves. Whatever a
commit raises, the connection is not used again unless PostgreSQL itself has said that the statement is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from headgate.commitlog.append import (
    APPEND_IN_TRANSACTION_SQL,
    APPEND_SQL,
    SESSION_SQL,
    Appended,
    Membership,
    Outcome,
    append_arguments,
    outcomes,
)
from headgate.commitlog.parameters import TYPES_SQL, Incoming, register
from headgate.commitlog.prepare import Batch
from headgate.gateway.health import Health
from headgate.gateway.store.settings import StoreSettings
from headgate.postgres import open_async, within
from headgate.runtime.backoff import Backoff
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["WRITING", "Committed", "Writer"]

logger = logging.getLogger(__name__)

WRITING = "writer"  # as `Health` knows it
_NAME = "headgate gateway writer"
_UNKNOWN = "it is not known whether the batch was written"
_CONNECT_TIMEOUT_S = 5
_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.05, 2.0
# Who says this will take nothing more: the connection is of no use.
_UNUSABLE = ("57P", "25006", "08")
# A server process that did not answer may still write when it wakes up, or hold the log until then.
_END_SQL = "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s and application_name = %s"

# What an append waits for first.
_PROBE_SQL, _PROBE_S = "select from kafka.head for update", 1.0

Committed = Callable[[int, Batch, Outcome], None]


class _Pending:
    """The batches of one call, and the place for its answer."""

    __slots__ = ("batches", "deadline", "done", "is_durable", "part_id", "size", "within")

    def __init__(
        self, part_id: int, batches: tuple[Batch, ...], is_durable: bool, within: Membership | None = None
    ) -> None:
        self.part_id = part_id
        self.batches = batches
        self.within = within
        self.is_durable = is_durable
        self.size = sum(batch.size + len(batch.plain or b"") for batch in batches)
        self.deadline = 0.0
        self.done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()

    @property
    def is_repeatable(self) -> bool:
        """Whether a second attempt is recognised as one."""
        return all(batch.producer_id >= 0 for batch in self.batches)

    def refuse(self, code: ErrorCode, message: str) -> None:
        if not self.done.done():
            self.done.set_exception(Refused(code, message))


class Writer:
    """Appends for one gateway. `on_commit` is told of every batch before its producer is."""

    def __init__(self, url: str, settings: StoreSettings, on_commit: Committed, health: Health) -> None:
        self._url = url
        self._health = health
        self._settings = settings
        self._on_commit = on_commit
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._has_work = asyncio.Event()
        self._is_closing = False
        self._connection: psycopg.AsyncConnection | None = None
        self._deaf_pid: int | None = None  # the server process of a line that was cut
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._connect()
        self._task = asyncio.create_task(self._run(), name="log writer")

    async def close(self) -> None:
        """Write what is queued, as long as that takes no longer than its requests may wait."""
        self._is_closing = True
        self._has_work.set()
        if self._task is not None:
            await self._task
        await self._drop()

    async def append(
        self, part_id: int, batches: tuple[Batch, ...], within: Membership | None = None, *, is_durable: bool
    ) -> Appended:
        """Queued before the first await: the order of calls is the order in the log."""
        if self._is_closing:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the gateway is stopping")
        if self._queued_bytes > self._settings.queue_bytes:
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "too much is waiting to be written")
        now = asyncio.get_running_loop().time()
        pending = _Pending(part_id, batches, is_durable, within)
        pending.deadline = now + self._settings.append_s(pending.size)
        self._queue.append(pending)
        self._queued_bytes += pending.size
        self._has_work.set()
        return await pending.done

    async def _run(self) -> None:
        while not (self._is_closing and not self._queue):
            await self._work()
            group = self._take()
            if group:
                try:
                    await self._write(group)
                except Exception as error:
                    logger.exception("an append failed")
                    self._health.failed(WRITING, repr(error))
                    await self._drop()
                    for pending in group:
                        pending.refuse(
                            ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is not known whether the batch was written"
                        )
            elif not self._is_closing:
                self._has_work.clear()

    async def _work(self) -> None:
        """Until there is some. Who has failed tries meanwhile whether it would succeed, so that clients may return."""
        while not self._has_work.is_set() and WRITING in self._health.troubles:
            try:
                if self._connection is None:
                    await self._connect()
                assert self._connection is not None
                await within(_PROBE_S, self._connection, self._connection.execute(_PROBE_SQL))
            except (psycopg.Error, TimeoutError) as error:
                self._health.failed(WRITING, error)
                await self._drop()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PROBE_S):
                        await self._has_work.wait()
            else:
                self._health.works(WRITING)
        await self._has_work.wait()

    def _take(self) -> list[_Pending]:
        group: list[_Pending] = []
        size = 0
        while self._queue and (not group or size + self._queue[0].size <= self._settings.group_bytes):
            pending = self._queue.popleft()
            self._queued_bytes -= pending.size
            # A producer that was told that its time is over sends again. Numbered batches are recognised then, and
            # those behind them would miss them now; others would be there twice.
            if pending.is_repeatable or not pending.done.done():
                size += pending.size
                group.append(pending)
        return group

    async def _write(self, group: list[_Pending]) -> None:
        """Until every one of the group has its answer."""
        while group:
            connection = await self._connected(group)
            if connection is None:
                return
            time_s = self._settings.append_s(sum(pending.size for pending in group))
            try:
                results = await within(time_s, connection, self._commit(connection, group))
            except psycopg.errors.QueryCanceled as error:  # somebody else holds the log; nothing was written
                self._health.failed(WRITING, error)
                self._refuse_late(group)
            except TimeoutError:  # the server does nothing, or the network swallows what we say
                self._deaf_pid = connection.info.backend_pid
                group = await self._lost(group, "no answer")
                self._refuse_late(group)
            except psycopg.Error as error:
                group = await self._failed(group, error)
            else:
                self._health.works(WRITING)
                self._answer(group, results)
                return

    async def _commit(self, connection: psycopg.AsyncConnection, group: Sequence[_Pending]) -> list[Outcome]:
        batches = [(pending.part_id, batch) for pending in group for batch in pending.batches]
        is_durable = any(pending.is_durable for pending in group)
        async with connection.cursor(binary=True) as cursor:
            if any(pending.within for pending in group):
                memberships = [pending.within for pending in group for _ in pending.batches]
                ids = [each and each.transactional_id for each in memberships]
                may_join = [each is not None and each.may_join for each in memberships]
                await cursor.execute(APPEND_IN_TRANSACTION_SQL, [Incoming(batches), ids, may_join, is_durable])
            else:
                await cursor.execute(APPEND_SQL, append_arguments(batches, is_durable=is_durable))
            return outcomes(await cursor.fetchall())

    async def _failed(self, group: list[_Pending], error: psycopg.Error) -> list[_Pending]:
        """Answer those that must be answered now; the others are to be tried again."""
        assert self._connection is not None
        state = error.sqlstate or ""
        if not self._connection.broken and not state.startswith(_UNUSABLE):
            return await self._failed_alone(group, error)
        return await self._lost(group, str(error))

    async def _lost(self, group: list[_Pending], why: str) -> list[_Pending]:
        """It is not known whether the commit happened: only those who would be recognised may be sent again."""
        logger.warning("lost PostgreSQL while appending: %s", why)
        self._health.failed(WRITING, why)
        await self._drop()
        for pending in group:
            if not pending.is_repeatable:
                pending.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, _UNKNOWN)
        return [pending for pending in group if pending.is_repeatable]

    async def _failed_alone(self, group: list[_Pending], error: psycopg.Error) -> list[_Pending]:
        """PostgreSQL refused the statement, so nothing of it was written. One may be to blame: each for itself."""
        if len(group) == 1:
            logger.error("PostgreSQL refused an append: %s", error)
            self._health.failed(WRITING, error)
            group[0].refuse(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be written")
            return []
        for pending in group:
            await self._write([pending])
        return []

    def _answer(self, group: Sequence[_Pending], results: Sequence[Outcome]) -> None:
        at = 0
        for pending in group:
            own = results[at : at + len(pending.batches)]
            at += len(own)
            for batch, outcome in zip(pending.batches, own, strict=True):
                if outcome.error is ErrorCode.NONE:
                    self._on_commit(pending.part_id, batch, outcome)
            refused = next((outcome for outcome in own if outcome.error is not ErrorCode.NONE), None)
            if refused is not None:
                pending.refuse(refused.error, "")
            elif not pending.done.done():
                first = own[0]
                time = pending.batches[0].append_time
                pending.done.set_result(Appended(first.base_offset, time, first.log_start_offset))

    async def _connected(self, group: list[_Pending]) -> psycopg.AsyncConnection | None:
        """A connection, however long it takes. Whoever cannot wait is refused; None if nobody of the group is left."""
        backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        while self._connection is None:
            self._refuse_late(group)
            if not group:
                return None
            try:
                await self._connect()
            except (psycopg.Error, TimeoutError) as error:
                pause_s = backoff.next_s()
                logger.warning("PostgreSQL is away, trying again in %.2f s: %s", pause_s, repr(error))
                self._health.failed(WRITING, error)
                await asyncio.sleep(pause_s)
        return self._connection

    def _refuse_late(self, group: list[_Pending]) -> None:
        now = asyncio.get_running_loop().time()
        for pending in (*group, *self._queue):
            if pending.deadline <= now or self._is_closing:
                pending.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, "PostgreSQL cannot be reached")
        group[:] = [pending for pending in group if not pending.done.done()]
        self._queue = deque(pending for pending in self._queue if not pending.done.done())
        self._queued_bytes = sum(pending.size for pending in self._queue)

    async def _connect(self) -> None:
        connection = await open_async(
            psycopg.AsyncConnection,
            self._url,
            _NAME,
            timeout_s=_CONNECT_TIMEOUT_S,
            prepare_threshold=1,
            application_name=_NAME,
        )
        try:
            await within(_CONNECT_TIMEOUT_S, connection, self._prepare(connection))
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def _prepare(self, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(SESSION_SQL)
        if self._deaf_pid is not None:
            await connection.execute(_END_SQL, [self._deaf_pid, _NAME])
            self._deaf_pid = None
        row = await (await connection.execute(TYPES_SQL)).fetchone()
        assert row is not None
        register(connection, *row)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
