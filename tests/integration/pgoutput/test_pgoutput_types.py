"""Every type, with its special values: server -> stream -> our value -> text -> server, and nothing changed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from headgate.wire.pgoutput import Insert, Type
from headgate.wire.pgtypes import BUILTIN_TYPES, Codec, TypeCatalog, TypeKind, Value, announced_type

from .server import Database

VALUES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int2": ("-32768", "0", "32767"),
    "int4": ("-2147483648", "-1", "2147483647"),
    "int8": ("-9223372036854775808", "127", "128", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "float4": ("0", "-0", "0.1", "100000", "1e6", "16777216", "3.4028235e38", "1e-45", "NaN", "Infinity", "-Infinity"),
    "float8": (
        "0", "-0", "0.1", "37", "1e14", "1e15", "1e16", "1e23", "9007199254740993", "123456789012345678", "0.0001",
        "0.00001", "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity",
    ),
    "numeric": (
        "0", "0.00", "-1.10", "1e-40", "1e500", "12345678901234567890.123456789012345678901234567890", "NaN",
        "Infinity", "-Infinity",
    ),
    "numeric(10,2)": ("1.5", "NaN"),
    "text": ("", "NULL", "é漢🎉", "tab\t line\n cr\r quote\" back\\slash \x01\x1f\x7f \u2028"),
    "varchar(10)": ("abc", " "),
    "char(5)": ("ab",),
    "name": ("a name",),
    '"char"': ("a", ""),
    "json": (
        '{"a":1, "a": 2 ,"b":[1,2]}', '{\n\t"x": "\\n"\r\n}', "12345678901234567890123.000", '"\\u0000 \\ud800"',
        "null", " [1] ", '{"10":1,"9":2}',
    ),
    "jsonb": ('{"b":1,"aa":{"c":[null,true,1e40]}}', "null", '"é\\""', "-0.00", "12345678901234567890123.000"),
    "bytea": ("", "\\x00ff", "\\xdeadbeef", "\\x" + "ab" * 300),
    "date": (
        "2025-01-31", "0001-01-01", "9999-12-31", "10000-01-01", "5874897-12-31", "0001-12-31 BC", "0044-03-15 BC",
        "4713-01-01 BC", "infinity", "-infinity",
    ),
    "time": ("00:00:00", "24:00:00", "12:34:56.789", "23:59:59.999999"),
    "time(0)": ("12:34:56.789",),
    "timetz": ("12:00+00", "12:00:00.5-08", "24:00:00+05:30", "00:00+15:59:59", "00:00-15:59:59", "01:02:03.000001+02"),
    "timestamp": (
        "2025-12-12 12:00:34.338547", "1999-01-08 00:00:00", "0044-03-15 12:00:00.5 BC", "0001-12-31 23:59:59 BC",
        "294276-12-31 23:59:59.999999", "4713-01-01 00:00:00 BC", "infinity", "-infinity",
    ),
    "timestamptz": (
        "2025-12-12 12:00:34.338547+00", "2025-12-12 12:00:00+05:30", "0044-03-15 12:00:00.5+00 BC",
        "294276-12-31 23:59:59.999999+00", "10000-01-01 00:00+00", "4713-01-01 00:00:00+00 BC", "infinity", "-infinity",
    ),
    "interval": (
        "0", "1 year 2 months -3 days 04:05:06.789", "-1 day +23:00", "-0.000001 s", "178000000 years", "13 months",
        "-13 months", "1000000:00:00", "-1.5 s", "1 mon -1 day",
    ),
    "uuid": ("f4b0611f-7258-47f8-bceb-0eba9ac5195a",),
    "inet": ("192.168.0.1", "192.168.0.1/24", "::1", "fe80::/64"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "money": ("-1234.56", "92233720368547758.07", "0"),
    "bit(3)": ("101",),
    "varbit": ("", "10110"),
    "tsvector": ("a:1A fat:2 'it''s':3",),
    "tsquery": ("fat & !(rat | 'c d')",),
    "point": ("(1.5,-2)", "(NaN,Infinity)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(1,1),(0,0)",),
    "path": ("[(0,0),(1,1)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1),(1,0))",),
    "circle": ("<(0,0),5>",),
    "pg_lsn": ("16/B374D848", "0/0"),
    "xid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "cid": ("7",),
    "tid": ("(4294967295,65535)",),
    "pg_snapshot": ("10:20:10,14",),
    "jsonpath": ('$."a"[*]?(@ > 1)',),
    "regclass": ("pg_class",),
    "regtype": ("integer",),
    "int4range": ("[1,10)", "empty", "(,5)", "(,)"),
    "numrange": ("(1.5,2.5]",),
    "tstzrange": ('["2025-01-01 00:00:00+00",infinity)',),
    "daterange": ("[2025-01-01,)",),
    "int4multirange": ("{}", "{[1,3),[5,9)}"),
    "tsmultirange": ('{["2025-01-01 00:00","2025-01-02 00:00")}',),
    "int2vector": ("1 2 3",),
    "int4[]": ("{}", "{1,NULL,3}", "{{1,2},{3,4}}", "{{{1}},{{2}}}", "[0:1]={7,8}", "[-1:0][2:3]={{1,2},{3,4}}"),
    "text[]": (
        r'{"",NULL,"NULL","null","a,b","q\"q","b\\s","{x}"," sp ","é","line' + "\n" + 'break",plain}',
        r'{{"a b","\\\""},{c,NULL}}',
    ),
    "bool[]": ("{t,f,NULL}",),
    "float8[]": ("{NaN,-Infinity,-0,1.5}",),
    "numeric[]": ("{1.10,NaN}",),
    "date[]": ('{"0044-03-15 BC",infinity,2025-01-01}',),
    "timestamptz[]": ('{"2025-01-01 00:00:00+00",infinity}',),
    "interval[]": ('{P1Y,"-1 day"}',),
    "bytea[]": (r'{"\\x00ff","\\x"}',),
    "json[]": (r'{"{\"a\": 1,\"a\": 2}","[1]","null"}',),
    "jsonb[]": (r'{"{\"a\": 1}",NULL}',),
    "uuid[]": ("{f4b0611f-7258-47f8-bceb-0eba9ac5195a}",),
    "box[]": ("{(1,1),(0,0);(2,2),(1,1)}",),
    "point[]": ('{"(1,2)"}',),
    "int4range[]": ('{"[1,2)",empty}',),
    "varchar(3)[]": ("{abc,NULL}",),
    # Made in the test's own schema:
    "mood": ("sad", "it's \"ok\""),
    "mood[]": (r'{sad,NULL,"it\'s \"ok\""}'.replace("\\'", "'"),),
    "positive": ("1",),
    "positive[]": ("{1,2}",),
    "tags": ("{a,NULL}", "[0:0]={z}"),
    "tags[]": (r'{"{a,b}","{\"c d\",NULL}"}',),
    "stamp": ("2025-12-12 12:00:00+00",),
    "pair": ("(1,two)", "(,)", '(,"")', r'(-5,"a b, ""c"" \\ (d)")', '(7,"line' + "\n" + 'break")'),
    "pair[]": (r'{"(1,two)",NULL,"(2,\"a \"\"b\"\"\")"}',),
    "single": ("(1)", "()"),
    "nested": (
        r'("(1,""x y"")","{sad,NULL}","2025-12-12 12:00:00+00","\\x00ff",t,"{""a"": 1}")',
        "(,,,,,)",
    ),
    "span": ("[1.5,2.5)", "empty"),
    "vector": ("[1,2.5,-3]",),
}  # fmt: skip

TYPES = """
create type mood as enum ('sad', 'it''s "ok"');
create domain positive as int check (value > 0);
create domain tags as text[];
create domain stamp as timestamptz;
create type pair as (a int, "b c" text);
create type single as (one int);
create type nested as (p pair, m mood[], s stamp, raw bytea, yes bool, j jsonb);
create type span as range (subtype = numeric);
"""


def stored_values(database: Database) -> list[tuple[str, int, bytes]]:
    """Every value through a table and the stream: its declared type, its type's oid, its text."""
    database.sql("create extension if not exists vector schema pg_catalog")
    database.sql(TYPES)
    named = {f"v{number}": name for number, name in enumerate(VALUES)}
    database.sql(";".join(f"create table {table} (v {name})" for table, name in named.items()))
    database.publish()
    for table, name in named.items():
        for text in VALUES[name]:
            database.sql(f"insert into {table} values (%s::text::{name})", text)
    stored = []
    for transaction in database.transactions():
        (change,) = transaction.changes
        assert isinstance(change.body, Insert)
        assert change.relation is not None
        (raw,) = change.body.new
        assert isinstance(raw, bytes)
        stored.append((named[change.relation.name], change.relation.columns[0].type_id, raw))
    assert len(stored) == sum(map(len, VALUES.values()))
    return stored


def test_values_survive(database: Database) -> None:
    stored = stored_values(database)
    types = database.types()
    for name, oid, raw in stored:
        codec = types.codec(oid)
        text = raw.decode()
        value = codec.decode(text)
        back = codec.encode(value)
        literal = "'" + back.replace("'", "''") + "'"
        assert database.output(f"select {literal}::{name}") == [raw], (name, text, value, back)
        check_json(codec, text, value)


def check_json(codec: Codec, text: str, value: Value) -> None:
    """JSON says the same as the value does."""
    as_json = codec.json(text)
    assert "\n" not in as_json
    assert "\r" not in as_json
    if codec.name == "json":
        assert json.loads(as_json) == json.loads(text)
    else:
        assert same(json.loads(as_json), value, codec.name)


def same(loaded: Any, value: Value, rule: str) -> bool:
    if isinstance(value, bytes):
        return isinstance(loaded, str)
    if isinstance(value, float):
        number = float(loaded)
        return str(number) == str(value) and isinstance(loaded, float) == math.isfinite(value)
    if isinstance(value, list):
        return len(loaded) == len(value) and all(same(a, b, rule) for a, b in zip(loaded, value, strict=True))
    if isinstance(value, dict):
        return list(loaded) == list(value) and all(same(loaded[key], value[key], rule) for key in value)
    return bool(loaded == value) or loaded == json.loads(str(value))  # a JSON value inside an array or composite


def test_values_are_what_the_documentation_says(database: Database) -> None:
    stored = stored_values(database)
    types = database.types()
    seen: dict[str, list[Value]] = {}
    for name, oid, raw in stored:
        seen.setdefault(name, []).append(types.codec(oid).decode(raw.decode()))
    assert seen["bool"] == [True, False]
    assert seen["int8"] == [-(2**63), 127, 128, 2**63 - 1]
    assert str(seen["float8"][1]) == "-0.0"
    assert seen["numeric"][1:4] == ["0.00", "-1.10", "0." + "0" * 39 + "1"]
    assert seen["numeric"][-3:] == ["NaN", "Infinity", "-Infinity"]
    assert seen["char(5)"] == ["ab   "]
    assert seen["json"] == list(VALUES["json"])
    assert seen["bytea"][:3] == [b"", b"\x00\xff", b"\xde\xad\xbe\xef"]
    assert seen["date"] == [
        "2025-01-31", "0001-01-01", "9999-12-31", "+10000-01-01", "+5874897-12-31", "0000-12-31", "-0043-03-15",
        "-4712-01-01", "infinity", "-infinity",
    ]  # fmt: skip
    assert seen["time"] == ["00:00:00", "24:00:00", "12:34:56.789", "23:59:59.999999"]
    assert seen["timetz"] == [
        "12:00:00Z", "12:00:00.5-08:00", "24:00:00+05:30", "00:00:00+15:59:59", "00:00:00-15:59:59",
        "01:02:03.000001+02:00",
    ]  # fmt: skip
    assert seen["timestamp"][:5] == [
        "2025-12-12T12:00:34.338547", "1999-01-08T00:00:00", "-0043-03-15T12:00:00.5", "0000-12-31T23:59:59",
        "+294276-12-31T23:59:59.999999",
    ]  # fmt: skip
    assert seen["timestamptz"][:3] == [
        "2025-12-12T12:00:34.338547Z", "2025-12-12T06:30:00Z", "-0043-03-15T12:00:00.5Z"
    ]  # fmt: skip
    assert seen["interval"][:3] == ["PT0S", "P1Y2M-3DT4H5M6.789S", "P-1DT23H"]
    assert seen["int4[]"] == [
        [], [1, None, 3], [[1, 2], [3, 4]], [[[1]], [[2]]], "[0:1]={7,8}", "[-1:0][2:3]={{1,2},{3,4}}"
    ]  # fmt: skip
    assert seen["text[]"][0] == [
        "", None, "NULL", "null", "a,b", 'q"q', "b\\s", "{x}", " sp ", "é", "line\nbreak", "plain"
    ]  # fmt: skip
    assert seen["bytea[]"] == [[b"\x00\xff", b""]]
    assert seen["date[]"] == [["-0043-03-15", "infinity", "2025-01-01"]]
    assert seen["box[]"] == [["(1,1),(0,0)", "(2,2),(1,1)"]]
    assert seen["mood[]"] == [["sad", None, 'it\'s "ok"']]
    assert (seen["positive"], seen["positive[]"]) == ([1], [[1, 2]])
    assert seen["tags"] == [["a", None], "[0:0]={z}"]
    assert seen["tags[]"] == [[["a", "b"], ["c d", None]]]
    assert seen["stamp"] == ["2025-12-12T12:00:00Z"]
    assert seen["pair"][:4] == [
        {"a": 1, "b c": "two"}, {"a": None, "b c": None}, {"a": None, "b c": ""}, {"a": -5, "b c": 'a b, "c" \\ (d)'}
    ]  # fmt: skip
    assert seen["pair[]"] == [[{"a": 1, "b c": "two"}, None, {"a": 2, "b c": 'a "b"'}]]
    assert seen["single"] == [{"one": 1}, {"one": None}]
    assert seen["nested"][0] == {
        "p": {"a": 1, "b c": "x y"},
        "m": ["sad", None],
        "s": "2025-12-12T12:00:00Z",
        "raw": b"\x00\xff",
        "yes": True,
        "j": '{"a": 1}',
    }
    assert seen["vector"] == ["[1,2.5,-3]"]


def test_infinite_intervals(database: Database) -> None:
    if database.server.version < 17:
        pytest.skip("intervals became unbounded in PostgreSQL 17")
    (text,) = database.output("select '-infinity'::interval")
    assert text == b"-infinity"
    assert TypeCatalog().codec(1186).decode("-infinity") == "-infinity"


def test_builtin_table_is_the_servers(database: Database) -> None:
    rows = database.sql(
        """
        with base as (select * from pg_type where oid < 10000 and typtype in ('b', 'r', 'm') and typarray <> 0)
        select oid::int8, typname, 0::int8, typdelim::text from base
        union all
        select a.oid::int8, a.typname, b.oid::int8, ',' from base b join pg_type a on a.oid = b.typarray
        """
    )
    ours = {(oid, info.name, info.element, info.delimiter) for oid, info in BUILTIN_TYPES.items()}
    assert ours == set(rows)


def test_type_messages_tell_domains_without_a_catalog(database: Database) -> None:
    database.sql(TYPES)
    database.sql("create table t (a positive, b tags, c mood, d pair)")
    database.publish()
    database.sql("insert into t values (1, '{x}', 'sad', '(1,b)')")
    told = [announced_type(m.type_id, m.schema, m.name) for m in database.messages() if isinstance(m, Type)]
    kinds = [(info.kind, info.base) for info in told if info is not None]
    assert kinds == [(TypeKind.DOMAIN, 23), (TypeKind.DOMAIN, 1009)]
