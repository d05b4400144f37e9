"""Databases in other encodings: names and values are UTF-8 for everybody behind us, in the stream and in snapshots.

A database without an encoding (SQL_ASCII) is taken for UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.kernels.changes import RangeDecoder
from headgate.sources.postgres_cdc.initial import InitialSnapshot
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.ranges import spool_buffers
from headgate.sources.postgres_cdc.spool import SpoolIndex, relations_before
from headgate.sources.postgres_cdc.type_book import read_types
from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import plan_table
from headgate.sources.postgres_snapshot.points import Method, take_point
from headgate.sources.postgres_snapshot.reading import ROW, read_range
from tests.integration.cdc.conftest import Admin, drop_slot, every_version
from tests.integration.cdc.watching import Start, ids, wait_until

pytestmark = pytest.mark.timeout(180)

LATIN, JAPANESE = "größe", "値"

every_encoding = pytest.mark.parametrize(
    ("encoding", "name"), [("LATIN1", LATIN), ("EUC_JP", JAPANESE), ("SQL_ASCII", "plain"), ("SQL_ASCII", LATIN)]
)


@pytest.fixture
def database(server: PostgresServer, admin: Admin, encoding: str, name: str) -> Iterator[tuple[str, Admin]]:
    """Its address for the bridge, and its owner; table, column, type, attribute and label have the odd name."""
    database = f"enc_{encoding.lower()}"
    admin.execute(f"drop database if exists {database} with (force)".encode())
    admin.execute(f"create database {database} encoding '{encoding}' template template0 locale 'C'".encode())
    own = server.url.replace("/headgate?", f"/{database}?")
    with psycopg.connect(own, autocommit=True, client_encoding="UTF8") as connection:
        connection.execute(
            f"""create type "c{name}" as ("{name}" text); create type label as enum ('{name}')""".encode()
        )
        connection.execute(
            f'create table "{name}" (id bigint primary key, "{name}" text, c "c{name}", e label)'.encode()
        )
        connection.execute(f'grant select on "{name}" to bridge; create publication p for table "{name}"'.encode())
        yield own.replace("user=headgate", "user=bridge"), connection
        for (slot,) in connection.execute("select slot_name from pg_replication_slots").fetchall():
            drop_slot(connection, slot)
    admin.execute(f"drop database {database} with (force)".encode())


def insert(connection: Admin, name: str) -> dict[str, Any]:
    """One row; returns it as an event has it."""
    connection.execute(f'insert into "{name}" values (1, %s, row(%s), %s)'.encode(), [name, name, name])
    return {"id": 1, name: name, "c": {name: name}, "e": name}


@every_version
@every_encoding
def test_the_stream(database: tuple[str, Admin], name: str, reader: Start, spool: Path) -> None:
    url, connection = database
    process = reader(url=url)
    process.ensure()
    row = insert(connection, name)
    wait_until(lambda: ids(spool) == [1])
    index = SpoolIndex(spool)
    index.refresh()
    decoder = RangeDecoder(origin="o", relations=relations_before(spool, 0), types=read_types(spool))
    batches = decoder.decode(spool_buffers(index.slices(0, index.end_lsn)))
    payloads = [msgspec.msgpack.decode(row["_payload"]) for batch in batches for row in batch.to_pylist()]
    (event,) = [each for each in payloads if each["operation"] == "INSERT"]
    assert (event["table"], event["data"]) == (name, row)
    process.stop()


@every_encoding
def test_snapshots(database: tuple[str, Admin], name: str) -> None:
    url, connection = database
    row = insert(connection, name)
    for method in get_args(Method):
        with take_point(url, method, "public", name, 30) as point:
            plan = plan_table(url, "public", name, ("p",))
            (whole,) = plan.ranges(1, least_blocks=1)
            options = SnapshotOptions(url, f'public."{name}"', "p", format="json")
            batches = list(read_range(options, SnapshotRange(plan, whole, point.snapshot_name)))
        assert [json.loads(each) for batch in batches for each in batch.column(ROW).to_pylist()] == [row]


@every_encoding
def test_the_rows_that_debeziums_format_begins_with(database: tuple[str, Admin], name: str, tmp_path: Path) -> None:
    url, connection = database
    row = insert(connection, name)
    texts = {"url": url, "slot": "s", "publication": "p", "spool": str(tmp_path / "spool"), "format": "debezium"}
    found = [each for batch in InitialSnapshot(CdcOptions.from_spark(texts)).rows([]) for each in batch.to_pylist()]
    (event,) = [json.loads(each["_payload"]) for each in found]
    assert (event["op"], event["source"]["table"], event["after"][name]) == ("r", name, name)
    assert event["after"]["e"] == row["e"]
