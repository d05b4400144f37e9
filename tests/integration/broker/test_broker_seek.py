"""A group that is moved, or lost and regained, while its reader is at work: every answer counts where it was asked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import psycopg

from headgate.broker import BrokerClient, Event
from headgate.broker.reading import READ_AHEAD
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running, until

COUNT = 20_000
TRIES = 10


async def publish_numbers(db: psycopg.AsyncConnection[Any], count: int) -> None:
    statement = "select count(*) from publish_many(array_fill('t'::text, array[%s]), array(select to_jsonb(n)"
    await db.execute(f"{statement} from generate_series(1, %s) as n))".encode(), [count, count])


class Since:
    """Counts what has been handled since the group was moved."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    async def __call__(self, events: Sequence[Event[Any]]) -> None:
        self.numbers.update(event.payload for event in events)
        await asyncio.sleep(0)


def test_a_seek_under_a_busy_reader_skips_nothing(database: str) -> None:
    async def story() -> None:
        since = Since()
        dice = random.Random(14)
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, since, name="h")
            await publish_numbers(db, COUNT)
            await eventually(lambda: len(since.numbers) == COUNT)
            for attempt in range(TRIES):
                await db.execute("select seek('g', 0)")
                since.numbers.clear()
                busy = dice.randrange(1, COUNT)
                await eventually(lambda busy=busy: len(since.numbers) >= busy)  # type: ignore[misc]
                await db.execute("select seek('g', 0)")
                since.numbers.clear()
                try:
                    await eventually(lambda: len(since.numbers) == COUNT)
                except TimeoutError:
                    raise AssertionError(f"{COUNT - len(since.numbers)} never came, try {attempt}") from None

    asyncio.run(story())


def test_a_lease_that_is_lost_and_regained_during_a_slow_read(database: str) -> None:
    """What waited for its handler was dropped with the lease: the read that regains it must not begin behind it."""

    async def story() -> None:
        seen = Seen()
        may_go_on = asyncio.Semaphore(0)  # once for each batch

        async def handle(events: Sequence[Event[Any]]) -> None:
            await may_go_on.acquire()
            await seen(events)

        slow = await psycopg.AsyncConnection.connect(database)  # in a transaction, whose lock delays the read
        client = BrokerClient(database, group="g", chunk=10)
        async with slow, running(client), await connect(database) as db:
            await client.register_reliable_handler(ALL, handle, name="h")
            await publish_numbers(db, 10 * (READ_AHEAD + 1))
            # All is dispatched, and the reader waits with its hands full: what the lock meets next is its read.
            await eventually(lambda: len(client._readers["g"]._tenure.checkpoints) == READ_AHEAD)
            tenure = client._readers["g"]._tenure
            await slow.execute("lock table headgate.config in access exclusive mode")
            may_go_on.release()
            await until(db, _waiting("read_next_events"))
            await db.execute("select release_group_v1('g', %s)", [client.id])
            may_go_on.release()
            await eventually(lambda: tenure.over)  # the acknowledgement was refused
            await slow.rollback()
            for _ in range(2 * READ_AHEAD):
                may_go_on.release()
            await eventually(lambda: len({event.id for event in seen.events}) == 10 * (READ_AHEAD + 1))

    asyncio.run(story())


def _waiting(function: str) -> str:
    return (
        f"select 1 from pg_stat_activity where query ~ '{function}' and wait_event_type = 'Lock'"
        " and datname = current_database()"
    )
