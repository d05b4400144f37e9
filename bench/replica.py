"""The replica: changes from a JetStream stream into SQLite, beside plain sqlite3 inserts of the same rows.

"Plain" is the limit for the whole: the same rows, the same table and settings, the rows ready in memory, nothing but
executemany and a commit now and then. The rows are inserts in transactions of ten.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import time
from pathlib import Path
from typing import Any

import nats
import pyarrow as pa

from bench.harness import Bench
from headgate.consume import CaughtUp, Changes, Consumer
from headgate.destinations.nats import JetStream, NatsOptions, Publisher
from headgate.embedded import Stack
from headgate.model import Position
from headgate.replica import Replica, open_target
from headgate.wire.envelope import Event, MessagePackEncoder, Operation, encode_fields, schema_version
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeCatalog

__all__ = ["measure"]

_TURNS = 3
_PER_TRANSACTION = 10
_COLUMNS = (
    ("id", 20, "bigint"),
    ("name", 25, "text"),
    ("price", 1700, "numeric"),
    ("at", 1184, "timestamp with time zone"),
)
_RELATION = Relation(
    1, "public", "item", ReplicaIdentity.DEFAULT,
    tuple(RelationColumn(name == "id", name, oid, -1) for name, oid, _ in _COLUMNS),
)  # fmt: skip
_INSERT = "insert or replace into item values (?, ?, ?, ?)"


def measure(bench: Bench) -> None:
    rows = min(bench.rows, 40_000 if bench.quick else 200_000)
    with Stack(bench.directory / "stack", postgres=False, durable=False) as endpoints:
        url = endpoints.nats_url or ""
        _publish(url, rows)
        plain, whole, read = [], [], []
        for turn in range(_TURNS):  # by turns, because a machine's speed changes
            plain.append(_plain(bench.directory / f"plain{turn}.db", rows))
            whole.append(asyncio.run(_replicate(url, bench.directory / f"replica{turn}.db", rows)))
            read.append(asyncio.run(_read(url, rows)))
    bench.figure("plain_sqlite_rows_per_second", rows / statistics.median(plain))
    bench.figure("consumer_alone_changes_per_second", rows / statistics.median(read))
    bench.figure("replica_changes_per_second", rows / statistics.median(whole))
    ratio = statistics.median(plain) / statistics.median(whole)
    bench.figure("replica_to_plain_ratio", ratio)
    bench.check("replica_changes_per_second", rows / statistics.median(whole), 20_000, "higher")


def _row(number: int) -> tuple[bytes, ...]:
    moment = f"2025-12-12 12:00:{number % 60:02}.338547+00"
    return str(number).encode(), b"item number %d" % number, b"%d.50" % (number % 1000), moment.encode()


def _publish(url: str, rows: int) -> None:
    encoder = MessagePackEncoder("7", TypeCatalog())
    places = [Position(1000 + number // _PER_TRANSACTION, number % _PER_TRANSACTION) for number in range(rows)]
    payloads = [
        encoder.encode(
            Event(Operation.INSERT, place, place.major, 0, 5, _RELATION, data=_row(number), count=_PER_TRANSACTION)
        )
        for number, place in enumerate(places)
    ]
    version = schema_version(_RELATION)
    columns = [
        {"name": name, "type": text, "type_oid": oid, "position": n, "kind": "base", "replicated": True, "key": n == 1}
        for n, (name, oid, text) in enumerate(_COLUMNS, 1)
    ]
    description = {
        "schema": "public", "table": "item", "version": version, "columns": columns,
        "primary_key": ["id"], "key": ["id"],
    }  # fmt: skip
    end = {
        "snapshot_id": "s1", "operation": "snapshot_end", "cdc_stream": "CDC", "schema_version": version,
        "checksum": "0" * 16, "lsn": "0/0",
    }  # fmt: skip
    small: dict[str, dict[str, Any]] = {"$KV.schemas.public.item": description, "init.meta.item": end}
    asyncio.run(_prepare(url, {subject: encode_fields(fields, is_json=False) for subject, fields in small.items()}))
    _send(url, "CDC", ["cdc.public.item.insert"] * rows, payloads)


async def _prepare(url: str, messages: dict[str, bytes]) -> None:
    client = await nats.connect(url)
    for stream, subjects in (("KV_schemas", "$KV.schemas.>"), ("INIT", "init.>")):
        await client.jetstream().add_stream(name=stream, subjects=[subjects])
    for subject, payload in messages.items():
        await client.jetstream().publish(subject, payload)
    await client.close()


def _send(url: str, stream: str, subjects: list[str], payloads: list[bytes]) -> None:
    options = NatsOptions(url=url, stream=stream, subjects=(subjects[0].rsplit(".", 1)[0] + ".>",))
    with JetStream.open(options) as jetstream:
        jetstream.ensure_stream(options)
    with Publisher(options) as publisher:
        ids = pa.array([f"{stream}-{number:08}" for number in range(len(payloads))])
        publisher.publish(pa.array(subjects), ids, pa.array(payloads, pa.binary()))
        publisher.flush().raise_for_failures()


def _plain(path: Path, rows: int) -> float:
    """The same commits that the replica makes: every 20,000 rows."""
    values: list[Any] = [(number, *(text.decode() for text in _row(number)[1:])) for number in range(rows)]
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        connection.execute("create table item (id integer, name text, price text, at text, primary key (id))")
        began = time.perf_counter()
        for start in range(0, rows, 20_000):
            connection.execute("begin")
            connection.executemany(_INSERT, values[start : start + 20_000])
            connection.execute("commit")
        seconds = time.perf_counter() - began
    connection.close()
    return seconds


async def _replicate(url: str, path: Path, rows: int) -> float:
    target = open_target(f"sqlite:///{path}")
    began = time.perf_counter()
    await Replica(target, url, ["item"]).run(once=True)
    seconds = time.perf_counter() - began
    assert target.execute("select count(*) from item") == [(rows,)], "the replica is not exact"
    assert json.dumps(target.load()[0])
    target.close()
    return seconds


async def _read(url: str, rows: int) -> float:
    began = time.perf_counter()
    count = 0
    async with Consumer(url, ["item"]) as consumer:
        async for step in consumer.steps():
            if isinstance(step, Changes):
                count += len(step.changes)
            elif isinstance(step, CaughtUp):
                break
    assert count == rows
    return time.perf_counter() - began
