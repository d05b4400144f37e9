"""Leases of groups and duties: what clocks, settings and forgotten sessions can do to them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from headgate.broker import BrokerClient, Message, duties
from tests.integration.broker.brokers import Broker
from tests.integration.broker.clients import ALL, Seen, connect, eventually, running

AHEAD = "clock_timestamp() + interval '1 hour'"  # what was written before the clock stepped back


def test_a_session_that_read_before_a_seek_does_not_undo_it(ours: Broker) -> None:
    """Plain SQL, as the documentation has it: no owner and no epoch are given."""
    ours.subscribe("g")
    ours.publish(*[("t", number) for number in range(5)])
    ours.poll()
    read = ours.read("g")
    ours.db.execute("select seek('g', 0)")
    with pytest.raises(psycopg.Error) as refused:
        ours.ack("g", read[0].cursor)
    assert refused.value.sqlstate == "HG001"
    assert ours.cursor("g") == 0
    assert [event.payload for event in ours.read("g")] == [0, 1, 2, 3, 4]
    ours.ack("g", read[0].cursor)
    assert ours.cursor("g") == read[0].cursor


def test_without_the_setting_a_lease_has_its_default(ours: Broker) -> None:
    ours.subscribe("g")
    ours.publish(("t", 1))
    ours.poll()
    ours.db.execute("delete from config where key = 'lease'")
    assert [event.payload for event in ours.read("g")] == [1]
    lasts = ours.db.execute("select lease_until - clock_timestamp() > '10 s' from subscription_groups").fetchone()
    assert lasts == (True,)


@pytest.mark.parametrize("setting", ["15 seconds", "2 hours"])
def test_a_clock_that_steps_back_leaves_the_group_to_the_living(ours: Broker, setting: str) -> None:
    """A reader died, and its lease ends an hour from now; only if leases are that long, it may be alive."""
    ours.subscribe("g")
    ours.db.execute("update config set value = %s where key = 'lease'", [setting])
    ours.publish(("t", 1))
    ours.poll()
    ours.db.execute("select hold_group_v1('g', 'dead')")
    ours.db.execute(f"update subscription_groups set lease_until = {AHEAD}".encode())
    assert [event.payload for event in ours.read("g")] == ([1] if setting == "15 seconds" else [])


def test_a_living_reader_keeps_its_group_when_the_clock_steps_back(ours: Broker) -> None:
    ours.subscribe("g")
    hold = "select hold_group_v1('g', 'living')"
    epoch = ours.db.execute(hold).fetchone()
    ours.db.execute(f"update subscription_groups set lease_until = {AHEAD}".encode())
    assert ours.db.execute(hold).fetchone() == epoch
    bounded = "select lease_until <= clock_timestamp() + interval '15 seconds' from subscription_groups"
    assert ours.db.execute(bounded).fetchone() == (True,)


def test_a_clock_that_steps_back_leaves_duties_to_the_living(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client died on duty, and has been there longest; its last sign of life is an hour from now."""
    monkeypatch.setattr(duties, "HEARTBEAT_S", 0.1)

    async def story() -> None:
        async with await connect(database) as db:
            dead = duties.PREFIX + "0"
            await db.execute(f"insert into clients values (%s, {AHEAD})".encode(), [dead])
            async with running(BrokerClient(database, group="g")) as client:
                await eventually(lambda: client._duties.on_duty)

    asyncio.run(story())


async def _fetch(db: psycopg.AsyncConnection[Any], statement: str) -> list[Any]:
    return await (await db.execute(statement.encode())).fetchall()


def test_a_lease_of_another_server_counts_no_more(database: str) -> None:
    """As after a failover: the epoch stands for another past, and whoever has it begins again where the group is."""

    async def story() -> None:
        seen = Seen()
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, seen, name="h")
            await client.publish(Message("t", 1))
            await seen.wait_for(1)
            [(before,)] = await _fetch(db, "select epoch from subscription_groups")
            await db.execute("update subscription_groups set epoch = (4711::bigint << 40) | (epoch & 1099511627775)")
            await client.publish(Message("t", 2))
            await seen.wait_for(2)
            [(epoch,)] = await _fetch(db, "select epoch from subscription_groups")
            assert epoch == before + 1

    asyncio.run(story())
