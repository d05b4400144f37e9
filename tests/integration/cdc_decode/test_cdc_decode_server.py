"""Real changes of a real server: the fast decoder gives what the reference gives, through the spool's own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.kernels.changes import Format, RangeDecoder
from headgate.sources.postgres_cdc.ranges import spool_buffers
from headgate.sources.postgres_cdc.spool import Slice, SpoolIndex, relations_before
from headgate.wire.envelope import MessagePackEncoder
from headgate.wire.pgtypes import BUILTIN_TYPES, TypeCatalog
from tests.property.cdc_decode.spooled import (
    NOW_US,
    SYSTEM,
    TIMELINE,
    fast_batches,
    fast_rows,
    framed,
    make_debezium,
    reference_rows,
)

from .recording import Recording

# Special values, beside NULL; a type that is missing here has its column, too.
VALUES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "bytea": ("", "\\x00ff", "\\xdeadbeef01", "\\x" + "ab" * 300),
    "char": ("a", ""),
    "name": ("a name",),
    "int2": ("-32768", "0", "32767"),
    "int4": ("-2147483648", "-1", "2147483647"),
    "int8": ("-9223372036854775808", "127", "128", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "xid8": ("18446744073709551615",),
    "float4": ("0", "-0", "0.1", "1e6", "3.4028235e38", "1e-45", "NaN", "Infinity", "-Infinity"),
    "float8": (
        "0", "-0", "0.1", "37", "1e15", "1e16", "1e23", "9007199254740993", "123456789012345678", "0.00001", "5e-324",
        "2.2250738585072014e-308", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity",
    ),
    "numeric": ("0.00", "-1.10", "1e500", "12345678901234567890.123456789012345678901234567890", "NaN", "-Infinity"),
    "text": ("", "NULL", "é漢🎉", "tab\t line\n cr\r quote\" back\\slash \x01\x1f\x7f \u2028"),
    "varchar": ("abc", " "),
    "bpchar": ("ab   ",),
    "json": ('{"a":1, "a": 2 ,"b":[1,2]}', '{\n\t"x": "\\n"\r\n}', '"\\u0000 \\ud800"', "null"),
    "jsonb": ('{"b":1,"aa":{"c":[null,true,1e40]}}', '"é\\""'),
    "date": ("2025-01-31", "9999-12-31", "10000-01-01", "5874897-12-31", "0044-03-15 BC", "infinity", "-infinity"),
    "time": ("00:00:00", "24:00:00", "12:34:56.789"),
    "timetz": ("12:00+00", "12:00:00.5-08", "24:00:00+05:30", "00:00+15:59:59"),
    "timestamp": (
        "2025-12-12 12:00:34.338547", "1999-01-08 00:00:00.5", "0044-03-15 12:00:00.5 BC",
        "294276-12-31 23:59:59.999999", "infinity", "-infinity",
    ),
    "timestamptz": (
        "2025-12-12 12:00:34.338547+00", "2025-12-12 12:00:00+05:30", "0044-03-15 12:00:00.5+00 BC",
        "294276-12-31 23:59:59.999999+00", "10000-01-01 00:00+00", "infinity", "-infinity",
    ),
    "interval": ("0", "1 year 2 months -3 days 04:05:06.789", "-0.000001 s", "178000000 years"),
    "uuid": ("f4b0611f-7258-47f8-bceb-0eba9ac5195a",),
    "inet": ("192.168.0.1/24", "::1"),
    "cidr": ("10.0.0.0/8",),
    "macaddr": ("08:00:2b:01:02:03",),
    "money": ("-1234.56",),
    "varbit": ("", "10110"),
    "tsvector": ("a:1A fat:2 'it''s':3",),
    "point": ("(1.5,-2)",),
    "box": ("(1,1),(0,0)",),
    "pg_lsn": ("16/B374D848",),
    "int4range": ("[1,10)", "empty"),
    "tstzrange": ('["2025-01-01 00:00:00+00",infinity)',),
    "int4multirange": ("{[1,3),[5,9)}",),
    "_int4": ("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={7,8}"),
    "_text": (r'{"",NULL,"NULL","a,b","q\"q","b\\s","{x}","é"}',),
    "_bool": ("{t,f,NULL}",),
    "_float8": ("{NaN,-Infinity,-0,1.5}",),
    "_timestamptz": ('{"2025-01-01 00:00:00+00",infinity}',),
    "_bytea": (r'{"\\x00ff","\\x"}',),
    "_jsonb": (r'{"{\"a\": 1}",NULL}',),
    "_box": ("{(1,1),(0,0);(2,2),(1,1)}",),
}  # fmt: skip

FORMATS: tuple[Format, ...] = ("msgpack", "json", "debezium")


def slices(directory: Path, start: int) -> list[Slice]:
    index = SpoolIndex(directory)
    index.refresh()
    return index.slices(start, index.end_lsn)


def check(recording: Recording, directory: Path, types: TypeCatalog, start: int = 0) -> list[dict[str, Any]]:
    """Both ways through the spool, from an LSN on, in every form. What is returned are the rows as MessagePack."""
    recording.spool(directory)
    relations = relations_before(directory, start)
    buffers = [buffer.tobytes() for buffer in spool_buffers(slices(directory, start))]
    made: dict[str, list[dict[str, Any]]] = {}
    for form in FORMATS:
        decoder = RangeDecoder(
            origin=SYSTEM, relations=relations, types=types, format=form, images=True, debezium=make_debezium,
            clock_us=lambda: NOW_US, timeline=TIMELINE,
        )  # fmt: skip
        made[form] = fast_rows(decoder.decode(spool_buffers(slices(directory, start))), images=True)
        assert made[form] == reference_rows(buffers, relations, types=types, form=form)
    return made["msgpack"]


def test_every_builtin_type(recording: Recording, tmp_path: Path) -> None:
    names = sorted(info.name for info in BUILTIN_TYPES.values())
    columns = ", ".join(f'"of_{name}" pg_catalog."{name}"' for name in names)
    recording.sql(f"create table every (id int primary key, {columns})")
    number = 0
    for name, texts in VALUES.items():
        for text in texts:
            number += 1
            recording.sql(
                f'insert into every (id, "of_{name}") values (%s, %s::text::pg_catalog."{name}")', number, text
            )
    rows = check(recording, tmp_path, TypeCatalog())
    assert len(rows) == number == sum(map(len, VALUES.values()))
    by_id = [msgspec.msgpack.decode(row["_payload"])["data"] for row in rows]
    assert all(len(data) == len(names) + 1 for data in by_id)


WORK = """
create type mood as enum ('sad', 'ok');
create type pair as (a int, "b c" text);
create domain stamp as timestamptz;
create table item (id bigint primary key, name text, mood mood, pair pair, moods mood[], at stamp, big text);
alter table item alter big set storage external;
create table whole (k int, v text);
alter table whole replica identity full;
create table "odd name.%" (id int primary key references item (id));
insert into item values (1, 'one "1"', 'ok', '(1,x)', '{ok,NULL}', 'epoch', repeat('x', 9000));
insert into item select g, 'n' || g, 'sad', null, '{}', now(), null from generate_series(10, 40) g;
update item set name = 'uno' where id = 1;
update item set id = 3 where id = 1;
insert into "odd name.%" values (3);
insert into whole values (1, 'a'), (2, null);
update whole set v = v || '!';
delete from whole;
delete from item where id between 20 and 30;
select pg_logical_emit_message(true, 'in', 'text'), pg_logical_emit_message(false, 'out', 'text');
alter table item add column extra int[] default '{1}', drop column name;
update item set extra = null where id = 10;
alter table item rename to thing;
insert into thing values (4, 'sad', '(,)', null, 'infinity', 'b', '{{1,2},{3,4}}');
truncate thing, "odd name.%", whole restart identity cascade
"""


def test_a_workload(recording: Recording, tmp_path: Path) -> None:
    for statement in WORK.split(";\n"):
        recording.sql(statement)
    rows = check(recording, tmp_path, recording.types())
    assert [row["_op"] for row in rows[-4:]] == ["insert", "truncate", "truncate", "truncate"]
    assert [row["_position"] for row in rows] == sorted({row["_position"] for row in rows})
    renamed = [row["_table"] for row in rows if row["_table"] in ("item", "thing")]
    assert renamed[0] == "item"
    assert renamed[-1] == "thing"


def test_the_stream_itself_says_the_same(recording: Recording, tmp_path: Path) -> None:
    """The spool keeps no LSN of single rows: `lsn` is the commit's there. All else is as in the stream."""
    for statement in WORK.split(";\n"):
        recording.sql(statement)
    types = recording.types()
    rows = check(recording, tmp_path, types)
    encoder = MessagePackEncoder(SYSTEM, types)
    events = (replace(event, position=event.position._replace(timeline=TIMELINE)) for event in recording.events())
    streamed = [msgspec.msgpack.decode(encoder.encode(event)) for event in events]
    decoded = [msgspec.msgpack.decode(row["_payload"]) for row in rows]
    for event in streamed + decoded:
        if event["operation"] != "MESSAGE":
            del event["lsn"]
    assert decoded == streamed


def test_a_lone_message_and_the_next_commit_have_different_positions(recording: Recording, tmp_path: Path) -> None:
    """The message's record may end where the commit's begins."""
    recording.sql("create table t (id int)")
    with recording.connection.transaction():
        recording.sql("insert into t values (1)")
        recording.sql("select pg_logical_emit_message(false, 'p', 'x')")
    positions = [row["_position"] for row in check(recording, tmp_path, TypeCatalog())]
    assert len(set(positions)) == 2
    assert positions == sorted(positions)


def test_a_range_that_begins_later(recording: Recording, tmp_path: Path) -> None:
    """The server describes a table once; later ranges take its description from beside the spool."""
    recording.sql("create table t (id int primary key, v text)")
    for number in range(5):
        recording.sql("insert into t values (%s, 'x')", number)
    check(recording, tmp_path, TypeCatalog())
    index = SpoolIndex(tmp_path)
    index.refresh()
    middle = index.end_within(0, 2, None)
    rows = check(recording, tmp_path / "again", TypeCatalog(), middle)
    assert [msgspec.msgpack.decode(row["_payload"])["data"]["id"] for row in rows] == [2, 3, 4]


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_values_nobody_thought_of(recording: Recording, form: str) -> None:
    recording.sql(
        "create table r (a int8, b float8, c float4, d numeric, e date, f timestamp, g timestamptz, h bytea, i text,"
        " j jsonb, k text[], l interval)"
    )
    recording.sql(
        """
        insert into r select ((random() - 0.5) * 2 ^ 63)::int8, (random() - 0.5) * 10 ^ (random() * 600 - 300),
            ((random() - 0.5) * 10 ^ (random() * 70 - 35))::float4,
            ((random() - 0.5) * 10 ^ (random() * 30 - 15))::numeric,
            '4713-01-01 BC'::date + (random() * 2000000)::int,
            '4713-01-01 BC'::timestamp + random() * 100000 * interval '1 year',
            now() - random() * interval '300 years', decode(md5(random()::text), 'hex'),
            (select string_agg(chr((random() * 50000)::int + 1), '') from generate_series(0, g % 40)),
            jsonb_build_object(chr((random() * 9000)::int + 1), random()), array[md5(random()::text), null],
            (random() - .5) * '9 years'::interval
        from generate_series(1, 3000) g
        """
    )
    payloads = [payload for _, payload in recording.messages() if payload[:1] != b"C"]
    buffer = framed(payloads)
    rows = fast_rows(fast_batches([buffer], types=TypeCatalog(), form=form, images=True), images=True)
    assert len(rows) == 3000
    assert rows == reference_rows([buffer], types=TypeCatalog(), form=form)
