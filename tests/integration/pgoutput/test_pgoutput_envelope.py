"""Events of a real workload in every format: folded, they are the tables; read by a snapshot, they are the same."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec

from headgate.model import Position
from headgate.wire.envelope import (
    DebeziumEncoder,
    DebeziumOptions,
    Event,
    JsonEncoder,
    MessagePackEncoder,
    Operation,
    events,
)
from headgate.wire.pgoutput import Insert, Relation
from headgate.wire.pgtypes import TypeCatalog

from .server import Database

SYSTEM = 7412345678901234567

TABLE = """
create type mood as enum ('sad', 'ok');
create table item (
    id bigint primary key, name text, price numeric, ratio float8, mood mood, tags text[], doc jsonb, raw bytea,
    at timestamptz, big text
);
alter table item alter big set storage external;
"""

WORK = """
insert into item values (1, 'one "1"', 1.50, 0.1, 'ok', '{a,NULL}', '{"b": 1}', '\\x00', 'epoch', repeat('x', 9000));
insert into item values (2, null, 'NaN', 'NaN', null, null, null, null, 'infinity', null);
insert into item select g, 'n' || g, g, g, 'sad', '{}', 'null', '', now(), '' from generate_series(10, 40) g;
update item set name = 'uno' where id = 1;
update item set id = 3 where id = 2;
delete from item where id between 20 and 30;
update item set big = null, price = 2 where id = 40
"""


def record(database: Database) -> list[Event]:
    database.sql(TABLE)
    database.publish()
    for statement in WORK.strip().split(";\n"):
        database.sql(statement)
    return [event for transaction in database.transactions() for event in events(transaction)]


def fold(decoded: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """A consumer: upsert what is there, delete by key, and let a changed key move the row."""
    table: dict[int, dict[str, Any]] = {}
    for event in decoded:
        key = event["data"]["id"]
        if event["operation"] == "DELETE":
            del table[key]
            continue
        before = table.pop(event.get("old", event["data"])["id"], {})
        table[key] = {**before, **event["data"]}
    return table


def snapshot(database: Database, relation: Relation) -> list[Event]:
    """The table as a snapshot reads it: the server's text of each row."""
    ids = [row[0] for row in database.sql("select id from item order by id")]
    rows = [tuple(database.output(f"select * from item where id = {key}")) for key in ids]
    return [
        Event(Operation.READ, Position(1, ordinal), 1, None, None, relation, data=row)
        for ordinal, row in enumerate(rows)
    ]


def test_folded_events_are_the_table_in_both_formats(database: Database) -> None:
    recorded = record(database)
    types = database.types()
    relation = recorded[-1].relation
    assert relation is not None
    rows = snapshot(database, relation)
    for encoder, decode in (
        (MessagePackEncoder(SYSTEM, types), msgspec.msgpack.decode),
        (JsonEncoder(SYSTEM, types), json.loads),
    ):
        folded = fold([decode(encoder.encode(event)) for event in recorded])
        read = {row["data"]["id"]: row["data"] for row in (decode(encoder.encode(event)) for event in rows)}
        assert repr(sorted(folded.items())) == repr(sorted(read.items()))  # repr, for NaN equals itself there
        assert len(folded) == 22


def test_a_row_is_the_same_bytes_from_snapshot_and_stream(database: Database) -> None:
    recorded = record(database)
    first, relation = recorded[0], recorded[0].relation
    assert relation is not None
    (copied,) = [
        tuple(database.output("select 1, 'one \"1\"', 1.50, 0.1::float8, 'ok'::mood, '{a,NULL}'::text[],"
                              " '{\"b\":1}'::jsonb, '\\x00'::bytea, 'epoch'::timestamptz, repeat('x', 9000)"))
    ]  # fmt: skip
    assert copied == first.data
    for encoder in (MessagePackEncoder(SYSTEM, database.types()), JsonEncoder(SYSTEM, database.types())):
        streamed = encoder.encode(first)
        read = encoder.encode(Event(Operation.READ, first.position, first.lsn, None, None, relation, data=copied))
        marker = b"\xa4data" if isinstance(encoder, MessagePackEncoder) else b'"data"'
        assert streamed.split(marker, 1)[1] == read.split(marker, 1)[1]


def test_message_ids_are_unique_and_stable(database: Database) -> None:
    database.sql("create table a (id int); create table b (id int)")
    database.publish()
    database.sql("select pg_logical_emit_message(true, 'p', 'in'), pg_logical_emit_message(false, 'p', 'out')")
    database.sql("insert into a select generate_series(1, 50)")
    database.sql("truncate a, b")
    encoder = MessagePackEncoder(SYSTEM, TypeCatalog())
    once, again = (
        [encoder.encode(event) for t in database.transactions(2, streaming=mode) for event in events(t)]
        for mode in ("off", "on")
    )
    assert once == again
    ids = [msgspec.msgpack.decode(data)["msg_id"] for data in once]
    assert len(set(ids)) == len(ids) == 54
    assert ids == sorted(ids)


def test_debezium_shape(database: Database) -> None:
    encoder = DebeziumEncoder(database.types(), DebeziumOptions(topic_prefix="shop"), database="postgres")
    parts = [part for event in record(database) for part in encoder.split(event)]
    decoded = [json.loads(encoder.encode(part.event, 0)) for part in parts]
    assert [event["op"] for event in decoded[:2]] == ["c", "c"]
    toast, moved, tombstone, made, gone = decoded[33:38]
    assert (toast["op"], toast["after"]["big"], toast["before"]) == ("u", "__debezium_unavailable_value", None)
    columns = dict.fromkeys(["name", "price", "ratio", "mood", "tags", "doc", "raw", "at", "big"])
    assert (moved["op"], moved["before"], moved["after"]) == ("d", {"id": 2, **columns}, None)
    assert (parts[35].number, tombstone["op"]) == (1, "d")
    assert (made["op"], made["before"], made["after"]["id"]) == ("c", None, 3)
    assert (gone["op"], gone["before"], gone["after"]) == ("d", {"id": 20, **columns}, None)
    assert decoded[0]["after"]["doc"] == '{"b": 1}'
    assert {key: decoded[0]["source"][key] for key in ("connector", "name", "db", "schema", "table", "snapshot")} == {
        "connector": "postgresql", "name": "shop", "db": "postgres", "schema": database.name, "table": "item",
        "snapshot": "false",
    }  # fmt: skip


def test_random_values_of_the_server_round_trip(database: Database) -> None:
    """Thousands of values nobody thought of; PostgreSQL makes them, and says whether they came back."""
    generators = {
        "int8": "((random() - 0.5) * 2 ^ 63)::int8",
        "float8": "(random() - 0.5) * 10 ^ (random() * 600 - 300)",
        "float4": "((random() - 0.5) * 10 ^ (random() * 70 - 35))::float4",
        "numeric": "((random() - 0.5) * 10 ^ (random() * 30 - 15))::numeric",
        "date": "'4713-01-01 BC'::date + (random() * 2000000)::int",
        "timestamp": "'4713-01-01 BC'::timestamp + random() * 100000 * interval '1 year'",
        "timestamptz": "'4713-01-01 BC'::timestamptz + random() * 100000 * interval '1 year'",
        "timetz": "(random() * interval '1 day')::time::text::timetz at time zone (random() * 14 * interval '1 hour')",
        "interval": "(random()-.5) * '9 years'::interval - random() * '9 days'::interval - random() * '9 s'::interval",
        "bytea": "decode(md5(random()::text), 'hex')",
        "text[]": "array[md5(random()::text), chr((random() * 100)::int + 1), null, chr((random() * 9999)::int + 300)]",
        "float8[]": "array[array[random(), 'NaN'], array[null, 1e300 * (random() - 0.5)]]",
    }
    for name, expression in generators.items():
        oid = database.sql(f"select '{name}'::regtype::int8")[0][0]
        texts = [
            row[0]
            for row in database.sql(f"select v::text from (select {expression} v from generate_series(1, 300)) s")
        ]
        codec = TypeCatalog().codec(oid)
        back = [codec.encode(codec.decode(text)) for text in texts]
        differ = f"a::{name}::text is distinct from b::{name}::text"
        query = f"select count(*) from unnest(%s::text[], %s::text[]) u(a, b) where {differ}"
        assert database.sql(query, texts, back) == [(0,)], name


def test_floats_are_read_to_the_last_bit(database: Database) -> None:
    database.sql("create table f (v float8)")
    database.publish()
    database.sql("insert into f select (random() - 0.5) * 10 ^ (random() * 600 - 300) from generate_series(1, 500)")
    bits = [bytes(row[0]) for row in database.sql("select float8send(v) from f")]
    bodies = [change.body for t in database.transactions() for change in t.changes]
    texts = [body.new[0] for body in bodies if isinstance(body, Insert)]
    codec = TypeCatalog().codec(701)
    assert [struct.pack("!d", codec.decode(text.decode())) for text in texts if isinstance(text, bytes)] == bits
