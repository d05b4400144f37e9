"""One row that cannot be read does not stop the others: text of a SQL_ASCII database that is no UTF-8."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from headgate.embedded.postgres import PostgresServer
from headgate.model import ProtocolError
from headgate.sources.postgres_cdc.initial import InitialSnapshot
from headgate.sources.postgres_cdc.options import CdcOptions
from headgate.sources.postgres_cdc.ranges import Range
from headgate.sources.postgres_cdc.spool import SpoolIndex
from headgate.sources.postgres_cdc.type_book import read_types
from headgate.spool.dead_letters import DeadLetters
from tests.integration.cdc.conftest import Admin, drop_slot, every_version
from tests.integration.cdc.watching import Start, ids, wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def ascii_database(server: PostgresServer, admin: Admin) -> Iterator[tuple[str, Admin]]:
    """A database that does not look at the bytes of text."""
    admin.execute("drop database if exists plain with (force)")
    admin.execute("create database plain encoding 'SQL_ASCII' template template0 locale 'C'")
    own = server.url.replace("/headgate?", "/plain?")
    with psycopg.connect(own, autocommit=True, client_encoding="SQL_ASCII") as connection:
        connection.execute(
            "create table t (id bigint primary key, note text, tags text[]); alter table t replica identity full;"
            "create table other (id bigint primary key, note text);"
            "grant select on t, other to bridge; create publication p for table t, other"
        )
        yield own.replace("user=headgate", "user=bridge"), connection
        drop_slot(connection, "s")
    admin.execute("drop database plain with (force)")


def write(connection: Admin, spool: Path) -> None:
    connection.execute("begin; insert into t values (1, 'good'); insert into t values (2, E'caf\\xe9');"
                       " insert into other values (3, 'good'); commit")  # fmt: skip
    connection.execute("update t set note = 'mended' where id = 2")
    connection.execute("insert into t values (4, 'x', array[E'\\xff'])")
    connection.execute("delete from t where id = 4")
    connection.execute("insert into other values (5, 'last')")
    wait_until(lambda: 5 in ids(spool))


def decoded(options: CdcOptions) -> list[dict[str, Any]]:
    index = SpoolIndex(options.spool_dir)
    index.refresh()
    whole = Range.of(options.spool_dir, 0, index.end_lsn, "o", 1, (), index.slices(0, index.end_lsn))
    whole = replace(whole, types=read_types(options.spool_dir))
    return [row for batch in whole.decode(options) for row in batch.to_pylist() if row["_op"] != "schema"]


def options_of(url: str, spool: Path, **more: str) -> CdcOptions:
    return CdcOptions.from_spark({"url": url, "slot": "s", "publication": "p", "spool": str(spool), **more})


@every_version
def test_a_row_that_is_no_utf8_is_set_aside_and_told(
    ascii_database: tuple[str, Admin], reader: Start, spool: Path, tmp_path: Path
) -> None:
    url, connection = ascii_database
    process = reader(url=url)
    process.ensure()
    write(connection, spool)
    with pytest.raises(ProtocolError, match="UTF-8") as caught:
        decoded(options_of(url, spool))
    assert caught.value.where == "public.t.note"
    path = tmp_path / "dead_letters.sqlite"
    for _ in range(2):  # a batch that comes again
        rows = decoded(options_of(url, spool, deadLetters=str(path), images="true"))
        events = [msgspec.msgpack.decode(row["_payload"]) for row in rows]
        assert [(each["operation"], each["table"]) for each in events] == [
            ("INSERT", "t"), ("MESSAGE", None), ("INSERT", "other"), ("MESSAGE", None), ("MESSAGE", None),
            ("MESSAGE", None), ("INSERT", "other"),
        ]  # fmt: skip
        assert [(each["ordinal"], each["event_count"]) for each in events[:3]] == [(0, 3), (1, 3), (2, 3)]
        assert [row["_op"] for row in rows[:2]] == ["insert", "message"]
        assert (rows[1]["_after"], rows[1]["_table"]) == (None, None)
        content = json.loads(events[1]["data"]["content"])
        assert events[1]["data"]["prefix"] == "headgate.gap"
        assert (content["reason"], content["tables"]) == ("value", [["public", "t"]])
        letters = DeadLetters(path).list()
        assert [letter.reason for letter in letters] == ["unreadable"] * 4
        assert "public.t.note" in letters[0].error
        assert letters[0].message_id == events[1]["msg_id"]
        kept = json.loads(letters[0].payload or b"")
        assert (kept["operation"], kept["data"]["id"], kept["data"]["note"]) == ("INSERT", "2", "\\x636166e9")


@every_version
def test_a_row_that_is_no_utf8_in_an_initial_snapshot(ascii_database: tuple[str, Admin], tmp_path: Path) -> None:
    """In Debezium's format: the others are read, and a message stands in its place."""
    url, connection = ascii_database
    connection.execute(
        "insert into t select i, case when i = 9000 then E'\\xff' else 'x' end from generate_series(1, 9001) i"
    )
    path = tmp_path / "dead_letters.sqlite"
    options = options_of(url, tmp_path / "spool", format="debezium", deadLetters=str(path))
    found = [row for batch in InitialSnapshot(options).rows([]) for row in batch.to_pylist()]
    events = [json.loads(row["_payload"]) for row in found]
    operations = [event["op"] for event in events]
    assert (operations.count("r"), operations.count("m")) == (9000, 1)
    place = operations.index("m")
    assert events[place]["message"]["prefix"] == "headgate.gap"
    marks = [event["source"]["snapshot"] for event in events]
    assert (marks[0], marks[-1], marks.count("true")) == ("first", "last", 8999)
    [letter] = DeadLetters(path).list()
    assert (letter.reason, letter.message_id) == ("unreadable", found[place]["_message_id"])
    assert found[place]["_topic"] != found[0]["_topic"]
    assert len({row["_message_id"] for row in found}) == 9001
