"""The log of one gateway process: what handlers call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.append import Appended, Membership, Outcome
from headgate.commitlog.configs import value_of
from headgate.commitlog.install import install
from headgate.commitlog.prepare import Batch, is_heavy, prepare
from headgate.gateway.health import Health
from headgate.gateway.store.catalog import CATALOG_CHANNEL, Catalog, Topic
from headgate.gateway.store.compaction import compact
from headgate.gateway.store.duty import Duty
from headgate.gateway.store.inbox import Inbox
from headgate.gateway.store.links import ANNOUNCING, LISTENING, LOG_CHANNEL, Announcer, Listener, read_announcement
from headgate.gateway.store.reader import Bounds, Fetched, Found, NoLimit, Reader, Room, Want
from headgate.gateway.store.retention import retain
from headgate.gateway.store.settings import StoreSettings
from headgate.gateway.store.statements import sql
from headgate.gateway.store.tails import Tails
from headgate.gateway.store.writer import Writer
from headgate.kernels.log import encode_rows, positions
from headgate.postgres import PromptConnection, open_connection
from headgate.postgres.pool import make_pool
from headgate.runtime.ending import end
from headgate.runtime.timings import Timings
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.refusal import Refused

__all__ = ["Store"]

logger = logging.getLogger(__name__)

_NAME = "headgate gateway"
_POOL_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5


class Store:
    """Topics and their records. Made by `open`; `close` finishes what is queued."""

    def __init__(self, url: str, settings: StoreSettings, health: Health) -> None:
        self._settings = settings
        self.health = health
        self.rejected_total = 0  # messages of SQL that could not be appended
        self.pool: AsyncConnectionPool[psycopg.AsyncConnection] = make_pool(
            PromptConnection,
            url,
            _NAME,
            size=settings.pool_size,
            configure=self._configure,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            timeout_s=_POOL_TIMEOUT_S,
        )
        self.tails = Tails(settings.cache_bytes)
        self.catalog = Catalog(self.pool, self.tails.forget)
        self._writer = Writer(url, settings, self.committed, health)
        self._reader = Reader(self.pool, self.tails)
        self._announcer = Announcer(self.pool, settings.announce_interval_s, health)
        self._listener = Listener(url, settings.poll_interval_s, self._poll, health, settings.patience_s)
        self._catalog_changed = asyncio.Event()
        self._looks: list[Callable[[psycopg.AsyncConnection], Awaitable[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        # Few: what they inflate is counted when it is there.
        self._workers = ThreadPoolExecutor(settings.inflaters, "headgate gateway inflater")
        self._url = url

    async def _configure(self, connection: psycopg.AsyncConnection) -> None:
        assert isinstance(connection, PromptConnection)
        connection.patience_s = self._settings.patience_s

    @classmethod
    async def open(cls, url: str, *, settings: StoreSettings | None = None, health: Health | None = None) -> Self:
        """Install the schema, connect, and start what runs beside the requests."""
        await asyncio.to_thread(_install, url)
        store = cls(url, settings or StoreSettings(), health or Health())
        try:
            await store._start()
        except BaseException:
            await store.close()
            raise
        return store

    async def _start(self) -> None:
        await self.pool.open(wait=True)
        await self.catalog.refresh()
        await self._writer.open()
        self.on_notify(LOG_CHANNEL, lambda payload: read_announcement(self.tails, payload))
        self.on_notify(CATALOG_CHANNEL, lambda _: self._catalog_changed.set())
        runs: dict[str, Callable[[], Awaitable[None]]] = {
            ANNOUNCING: self._announcer.run,
            LISTENING: partial(self._listener.run, self.tails.doubt),
            "catalog": self._follow_catalog,
        }
        runs |= {duty.name: duty.run for duty in self._duties()}
        self._tasks = [asyncio.create_task(self.health.tend(name, run), name=name) for name, run in runs.items()]

    def _duties(self) -> list[Duty]:
        """What one gateway does for all."""
        settings = self._settings
        inbox = Inbox(self.committed, self._rejected)
        retention = partial(retain, settings=settings, on_moved=self._moved)
        compaction = partial(compact, max_keys=settings.compaction_keys)
        soon_s, late_s = settings.patience_s, settings.upkeep_patience_s
        return [
            Duty("inbox", self._url, settings.inbox_interval_s, inbox.drain, self.health, soon_s),
            Duty("retention", self._url, settings.housekeeping_interval_s, retention, self.health, late_s),
            Duty("compaction", self._url, settings.compaction_interval_s, compaction, self.health, late_s),
        ]

    async def close(self) -> None:
        """Finish what is queued, then let go of everything."""
        await self._writer.close()
        await end(*self._tasks)
        await self.pool.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def on_notify(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call back with every payload, and with an empty one whenever notifications may have been missed."""
        self._listener.on_notify(channel, callback)

    def on_poll(self, look: Callable[[psycopg.AsyncConnection], Awaitable[None]]) -> None:
        """Have something looked at about once a second, on the connection that hears notifications."""
        self._looks.append(look)

    # Writing

    async def append(
        self, topic: Topic, index: int, records: bytes | memoryview, within: Membership | None = None
    ) -> Appended:
        """Append the batches of one partition. Raises `Refused`."""
        prepared = await self.prepared(topic, index, records, in_transaction=within is not None)
        return await self.write(topic, index, prepared, within)

    async def prepared(
        self, topic: Topic, index: int, records: bytes | memoryview, *, in_transaction: bool = False
    ) -> tuple[Batch, ...]:
        """The batches of one partition, checked. What might take long does not hold up the loop. Raises `Refused`."""
        if not 0 <= index < len(topic.parts):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        rules = self.catalog.rules(topic)
        check = partial(prepare, records, rules, in_transaction=in_transaction)
        if not is_heavy(records):
            return check()
        return await asyncio.get_running_loop().run_in_executor(self._workers, check)

    async def write(
        self, topic: Topic, index: int, batches: tuple[Batch, ...], within: Membership | None = None
    ) -> Appended:
        """Append what was prepared. Queued before the first await: the order of calls is the order in the log."""
        # Whoever commits a transaction must not lose a part of it.
        is_durable = within is not None or value_of(topic.configs, "headgate.async.commit") != "true"
        return await self._writer.append(topic.parts[index], batches, within, is_durable=is_durable)

    def committed(self, part_id: int, batch: Batch, outcome: Outcome) -> None:
        """Take note of a batch that is in the log, and tell whoever waits for it."""
        next_offset = outcome.base_offset + batch.count
        stable_offset = min(outcome.last_stable_offset, next_offset)
        if part_id not in self.catalog.compacted:  # any gateway may take some out of the middle
            self.tails.appended(part_id, outcome.base_offset, next_offset - 1, batch.data)
        self.tails.moved(part_id, next_offset, outcome.log_start_offset, stable_offset)
        self._announcer.say(part_id, next_offset, outcome.log_start_offset, stable_offset)

    def _rejected(self, count: int) -> None:
        self.rejected_total += count

    async def new_producer_id(self) -> int:
        """A number that no idempotent producer has had."""
        return int((await self._rows("new_producer_id"))[0][0])

    async def producers(self, part_id: int) -> list[tuple[int, int, int, int]]:
        """The idempotent producers of a partition: id, epoch, last sequence number, and when it wrote."""
        rows = await self._rows("producers", [part_id])
        return [(producer, epoch, sequence, seen_ms) for producer, epoch, sequence, seen_ms in rows]

    async def delete_records(self, topic: Topic, index: int, before: int) -> int:
        """Remove what lies before an offset; -1 for everything. Returns where the partition begins now."""
        if not 0 <= index < len(topic.parts):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        part_id = topic.parts[index]
        ((log_start_offset, next_offset),) = await self._rows("delete_records", [part_id, before])
        if log_start_offset is None:
            await self._reader.bounds(part_id)
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic.name}/{index} does not reach to {before}")
        self._moved(part_id, next_offset, log_start_offset)
        return int(log_start_offset)

    def _moved(self, part_id: int, next_offset: int, log_start_offset: int) -> None:
        self.tails.heard(part_id, next_offset, log_start_offset)
        self._announcer.say(part_id, next_offset, log_start_offset, next_offset)

    # Reading

    async def fetch(
        self, wants: Sequence[Want], *, max_bytes: int, min_bytes: int, max_wait_s: float, room: Room | None = None
    ) -> list[Fetched]:
        """Batches for each want, in their order, as soon as there are `min_bytes` or the time is over."""
        return await self._reader.fetch(
            wants, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s, room=room or NoLimit()
        )

    @property
    def fetch_timings(self) -> Timings:
        """How long reads for Fetch requests took, without the wait for new data."""
        return self._reader.timings

    async def bounds(self, part_id: int) -> Bounds:
        """Where a partition begins and ends at this moment."""
        return await self._reader.bounds(part_id)

    async def earliest(self, part_id: int) -> int:
        return (await self.bounds(part_id)).log_start_offset

    async def latest(self, part_id: int) -> int:
        return (await self.bounds(part_id)).next_offset

    async def at_time(self, part_id: int, timestamp: int) -> Found | None:
        """The first record of that time or later."""
        return await self._reader.at_time(part_id, timestamp)

    async def max_timestamp(self, part_id: int) -> Found | None:
        """The first of the records with the greatest timestamp."""
        return await self._reader.max_timestamp(part_id)

    async def sizes(self, topics: Iterable[Topic]) -> dict[int, int]:
        """How many bytes of batches every partition of these topics holds."""
        parts: Collection[int] = [part for topic in topics for part in topic.parts]
        return dict(await self._rows("sizes", [parts]))

    async def _rows(self, name: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        async with self.pool.connection() as connection:
            return await (await connection.execute(sql(name), values)).fetchall()

    # Keeping up with others

    async def _poll(self, connection: psycopg.AsyncConnection) -> None:
        """In case a notification was lost."""
        await self.catalog.refresh_on(connection)
        for look in self._looks:
            await look(connection)
        if watched := self.tails.watched():
            cursor = await connection.execute(sql("bounds"), [watched])
            for part_id, next_offset, log_start_offset, stable_offset in await cursor.fetchall():
                self.tails.heard(part_id, next_offset, log_start_offset, stable_offset)

    async def _follow_catalog(self) -> None:
        self._catalog_changed.set()  # who begins again has missed something
        while True:
            await self._catalog_changed.wait()
            self._catalog_changed.clear()
            try:
                await self.catalog.refresh()
            except psycopg.Error as error:
                self.health.failed("catalog", error)
                await asyncio.sleep(self._settings.poll_interval_s)
                self._catalog_changed.set()
            else:
                self.health.works("catalog")


def _install(url: str) -> None:
    positions.compile_ahead()
    encode_rows.compile_ahead()  # or the first message of an outbox would stop everybody for seconds
    with open_connection(url, _NAME) as connection:
        install(connection)
