"""Two real bridges on one NATS, of two databases with the same table; and a message deleted from one's stream."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from headgate.destinations.nats import Bucket
from headgate.embedded import Endpoints
from headgate.model.places import dictionary_bucket
from headgate.replica import Replica, open_target
from headgate.wire.compress import CURRENT_KEY, Current

from .conftest import Admin, Bridge, drop_slot, wait_until

pytestmark = pytest.mark.spark

TABLES = {
    "twin_shop": "create table users (id int primary key, name text); insert into users values (1, 'shop')",
    "twin_bank": "create table users (id int primary key, iban text, pin int); insert into users values (7, 'DE07', 1)",
}


@pytest.fixture
def twins(endpoints: Endpoints, spark: SparkSession, admin: Admin, tmp_path: Path) -> Iterator[list[Bridge]]:
    """A bridge for each database, with nothing named but its own stream."""
    assert endpoints.postgres_url is not None
    made = []
    for name, table in TABLES.items():
        admin.execute(f"create database {name}".encode())
        own = replace(endpoints, postgres_url=make_conninfo(endpoints.postgres_url, dbname=name))
        execute(own, f"{table}; create publication {name} for all tables")
        made.append(Bridge(name, own, spark, tmp_path / name).start(stream="", bucket=""))
    yield made
    for bridge in made:
        bridge.stop()
        drop_slot(admin, bridge.name)
        admin.execute(f"drop database {bridge.name} with (force)".encode())
        with bridge.jetstream() as jetstream:  # a stream that another database has written to is refused
            for stream in (bridge.name, f"INIT_{bridge.name}", f"KV_schemas_{bridge.name}"):
                jetstream._call(f"STREAM.DELETE.{stream}", {})


def execute(endpoints: Endpoints, statements: str) -> list[Any]:
    with psycopg.connect(endpoints.postgres_url or "", autocommit=True) as connection:
        cursor = connection.execute(statements.encode())
        return list(cursor.fetchall()) if cursor.description else []


def replicate(bridge: Bridge, path: Path) -> list[Any]:
    target = open_target(f"sqlite:///{path}")
    replica = Replica(target, bridge.endpoints.nats_url or "", ["users"], cdc_stream=bridge.name)
    asyncio.run(asyncio.wait_for(replica.run(once=True), 60))
    target.close()
    with sqlite3.connect(path) as connection:
        return list(connection.execute("select * from users order by id"))


def last_sequence(bridge: Bridge) -> int:
    with bridge.jetstream() as jetstream:
        info = jetstream.stream_info(bridge.name)
    return info.last_sequence if info is not None else 0


def test_each_replica_has_its_own_rows_and_misses_nothing(twins: list[Bridge], tmp_path: Path) -> None:
    shop, bank = twins
    assert replicate(shop, tmp_path / "shop.db") == [(1, "shop")]
    assert replicate(bank, tmp_path / "bank.db") == [(7, "DE07", 1)]
    for bridge, rows in ((shop, "(2, 'b'), (3, 'c')"), (bank, "(8, 'b', 2), (9, 'c', 3)")):
        execute(bridge.endpoints, f"insert into users values {rows}")
        bridge.messages(2)
    for bridge in twins:  # one that a replica has not read yet
        with bridge.jetstream() as jetstream:
            jetstream._call(f"STREAM.MSG.DELETE.{bridge.name}", {"seq": last_sequence(bridge) - 1})
    before = last_sequence(shop)
    execute(shop.endpoints, "update users set name = 'new' where id = 1")
    wait_until(lambda: last_sequence(shop) > before)
    source = "select * from users order by id"
    for bridge, path in ((shop, tmp_path / "shop.db"), (bank, tmp_path / "bank.db"), (bank, tmp_path / "new.db")):
        assert replicate(bridge, path) == execute(bridge.endpoints, source)


def test_two_compressing_bridges_have_dictionaries_of_their_own(
    twins: list[Bridge], endpoints: Endpoints, spark: SparkSession, tmp_path: Path
) -> None:
    """What one learns must not make the other forget: each keeps its own list of what is current."""
    for bridge in twins:
        bridge.stop()
    again = [Bridge(each.name, each.endpoints, spark, tmp_path / each.name) for each in twins]
    for bridge in again:
        bridge.start(stream="", bucket="", compression="zstd")
    try:
        for bridge in again:  # one after the other: the second learns when the first has learnt
            learn(bridge)
        for bridge, own, foreign in zip(again, TABLES, reversed(TABLES), strict=True):
            current = current_tables(bridge)
            assert any(own in table for table in current)
            assert not any(foreign in table for table in current)
            count = len(replicate(bridge, tmp_path / f"{own}.db"))
            assert execute(bridge.endpoints, "select count(*) from users") == [(count,)]
    finally:
        for bridge in again:
            bridge.stop()


def learn(bridge: Bridge) -> None:
    """Write rows until the bridge has a dictionary for them."""
    extra = "'account ' || g * 7" + (", 1" if bridge.name == "twin_bank" else "")
    for step in range(60):
        first = 1000 + step * 500
        execute(bridge.endpoints, f"insert into users select g, {extra} from generate_series({first}, {first + 499}) g")
        bridge.messages((step + 1) * 500)
        if current_tables(bridge):
            return
    raise AssertionError("no dictionary was made")


def current_tables(bridge: Bridge) -> list[str]:
    with bridge.jetstream() as jetstream:
        entry = Bucket(jetstream, dictionary_bucket(bridge.name)).get(CURRENT_KEY)
    return list(dict(Current.parse(entry.value).ids)) if entry else []
