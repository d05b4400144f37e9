"""The small parts of the consumer: names, descriptions, positions, and what bytes become."""

from __future__ import annotations

import math

import msgspec
import pytest

import headgate.consume
from headgate.consume import Column, Consumer, Schema, TableName
from headgate.consume.bookmark import Bookmark, TableMark
from headgate.consume.change import SnapshotInfo
from headgate.consume.decode import read_change, read_info, read_rows
from headgate.consume.rules import ExportRule, FilterRule
from headgate.consume.snapshots import rule_of
from headgate.consume.subjects import table_subject
from headgate.model import ProtocolError, StateError, UsageError


def test_what_the_package_offers() -> None:
    assert headgate.consume.__all__ == [
        "CaughtUp", "Change", "Changes", "Column", "Consumer", "Schema", "SnapshotBegin", "SnapshotEnd",
        "SnapshotFailed", "SnapshotInfo", "SnapshotRows", "Step", "TableGone", "TableName", "Transaction",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "schema", "table", "key", "token"),
    [
        ("users", "public", "users", "public.users", "users"),
        ("shop.users", "shop", "users", "shop.users", "shop.users"),
        ('"a.b"."c ""d"', "a.b", 'c "d', "a=2Eb.c=20=22d", 'a%2Eb.c%20"d'),
    ],
)
def test_names_of_tables(text: str, schema: str, table: str, key: str, token: str) -> None:
    name = TableName.parse(text)
    assert (name.schema, name.table, name.key, name.token) == (schema, table, key, token)
    assert TableName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["", "a.b.c", '"a', "a."])
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(UsageError):
        TableName.parse(text)


def test_a_consumer_needs_a_table() -> None:
    with pytest.raises(UsageError, match="no table"):
        Consumer("nats://localhost", [])


def test_subjects_of_a_table() -> None:
    assert table_subject("cdc.{schema}.{table}.{op}", TableName("s.x", "t")) == "cdc.s%2Ex.t.*"
    assert table_subject("cdc.{table}.{op}", TableName("public", "t")) == "cdc.t.*"


def _schema(identity: str = "default", key: tuple[str, ...] = (), primary: tuple[str, ...] = ()) -> Schema:
    columns = [Column("id", "integer"), Column("v", "text"), Column("g", "text", replicated=False)]
    return Schema("public", "t", "1", columns, replica_identity=identity, key=list(key), primary_key=list(primary))


def test_the_key_of_a_row() -> None:
    assert _schema(key=("id",), primary=("id",)).row_key == ("id",)
    assert _schema("index", key=("v",), primary=("id",)).row_key == ("v",)
    assert _schema("full", key=("id", "v"), primary=("id",)).row_key == ("id",)
    assert _schema("full", key=("id", "v")).row_key == ()
    assert _schema().row_key == ()
    assert _schema(primary=("g",)).row_key == ()  # which no event carries


def test_positions_survive_json() -> None:
    tables = {
        "public.a": TableMark("public", "a", "v1", "s1", 7, ExportRule(5), 9),
        "public.b": TableMark("public", "b", "v2", rule=FilterRule(1, 2, [1], 9)),
        "public.c": TableMark("public", "c", "v3"),
    }
    bookmark = Bookmark("CDC", 3, "id", tables)
    assert Bookmark.from_dict(msgspec.json.decode(msgspec.json.encode(bookmark.as_dict()))) == bookmark
    with pytest.raises(StateError, match="not a position"):
        Bookmark.from_dict({"sequence": "x"})


JSON_SCHEMA = Schema(
    "public",
    "t",
    "1",
    [
        Column("doc", "jsonb"),
        Column("data", "bytea"),
        Column("f", "double precision"),
        Column("grid", "integer[]", kind="array", element="integer"),
        Column("blobs", "bytea[]", kind="array", element="bytea"),
        Column("docs", "jsonb[]", kind="array", element="jsonb"),
        Column("n", "numeric(5,2)"),
    ],
)
JSON_ROW = (
    b'{"doc": {"a":1,"a":1.50},"data":"AP8=","f":"NaN","grid":[[1,2],[3,null]],"blobs":["AA==",null],'
    b'"docs":[ [1, 2], {}],"n":"1.10"}'
)


def test_values_of_json_events_are_those_of_messagepack() -> None:
    event = (
        b'{"schema":"public","table":"t","operation":"INSERT","commit_lsn":"0/1","xid":3,"event_count":1,"ordinal":0,'
        b'"msg_id":"7-1","data":' + JSON_ROW + b"}"
    )
    change = read_change(event, lambda *_: JSON_SCHEMA)
    rows = read_rows(b'{"operation":"snapshot","data":[' + JSON_ROW + b"]}", JSON_SCHEMA)
    for row in (change.data, *rows):
        assert math.isnan(row.pop("f"))
        assert row == {
            "doc": '{"a":1,"a":1.50}', "data": b"\x00\xff", "grid": [[1, 2], [3, None]], "blobs": [b"\x00", None],
            "docs": ["[1, 2]", "{}"], "n": "1.10",
        }  # fmt: skip
    assert change.is_last


@pytest.mark.parametrize("payload", [b"", b"{", b"\x81", b'{"before":null,"op":"c"}', b"\xc1"])
def test_other_bytes_are_refused(payload: bytes) -> None:
    for read in (lambda: read_change(payload, lambda *_: None), lambda: read_rows(payload, JSON_SCHEMA)):
        with pytest.raises(ProtocolError):
            read()
    with pytest.raises(ProtocolError):
        read_info(payload)
    with pytest.raises(ProtocolError):
        Schema.read(payload)


def test_rules_of_methods() -> None:
    assert rule_of(SnapshotInfo("s", "snapshot_end", method="export", lsn="1/10")) == ExportRule(0x100000010)
    filtered = SnapshotInfo("s", "snapshot_end", method="filter", lsn="0/9", xmin=1, xmax=2)
    assert rule_of(filtered) == FilterRule(1, 2, [], 9)
    assert rule_of(SnapshotInfo("s", "snapshot_end", method="watermark")) is None
    with pytest.raises(ProtocolError, match="unknown method"):
        rule_of(SnapshotInfo("s", "snapshot_end", method="guess"))
