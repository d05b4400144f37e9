"""Every type of PostgreSQL with its special values, in every target: exact, or refused for that table alone."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.wire.pgtypes import Codec
from tests.cdc import read_types
from tests.integration.pgoutput.test_pgoutput_types import TYPES, VALUES
from tests.snapshots.servers import shared_endpoints

from .test_replica_targets import KINDS, Pair, pair, run

MORE_TYPES = """
    create domain twin as pair; create domain younger as positive; create domain youngest as younger;
    create domain twins as pair[]; create domain label as mood; create domain price as numeric(10,2);
    create type mixed as (f float8, raw bytea, at timestamptz, n numeric, many float4[], deep pair);
    create domain ratio as float8; create domain raw as bytea; create domain moment as timestamptz;
    create type wrapped as (m mixed, r ratio, b raw[], j json, many jsonb[])
"""
MORE_VALUES: dict[str, tuple[str, ...]] = {
    "twin": ("(1,two)", "(,)"),
    "younger": ("7",),
    "youngest": ("7",),
    "younger[]": ("{7,NULL}",),
    "twins": ('{"(1,two)",NULL}', "{}"),
    "label": ("sad",),
    "price": ("1.50",),
    "ratio": ("NaN", "-Infinity", "-0", "1.5"),
    "raw": ("\\x00ff", "\\x"),
    "moment": ("infinity", "2025-12-12 12:00:00+00"),
    "mixed": (
        r'(NaN,"\\x00ff",infinity,NaN,"{NaN,-Infinity,1.5,NULL}","(1,""a b"")")', "(,,,,,)", "(-Infinity,,,,{},)",
    ),
    "mixed[]": (r'{"(Infinity,\"\\\\x00\",,,,)",NULL}',),
    "wrapped": (r'''("(NaN,""\\\\x01"",,,{Infinity},)",-Infinity,"{""\\\\x02""}",null,"{null,""[1]""}")''', "(,,,,)"),
    "wrapped[]": (r'''{"(,NaN,,\" [1]\",\"{\"\"null\"\"}\")",NULL}''',),
    "json": ("[" * 1500 + "]" * 1500, "\t[1,\r\n \t\t2] \n", "  null\n", "[]"),
    "jsonb": ("[null]", "[]"),
    "json[]": ('{"[1]",null,"null"}', '{{"[1]","2\n"},{NULL," null"}}', "{{{[]}}}", "[0:0]={1}"),
    "jsonb[]": ("{null,NULL}", '{{"[1]"},{"2"}}'),
    "float4[]": ("{NaN,Infinity,1.5,NULL}", "[2:3]={NaN,1}"),
    "bytea[]": (r'{"\\x00ff",NULL}', r'[0:0]={"\\x01"}'),
}  # fmt: skip
ALL = {**VALUES, **{name: (*VALUES.get(name, ()), *values) for name, values in MORE_VALUES.items()}}

# What a target has no place for. DuckDB's timestamps end in the year 294247, and its JSON takes no lone surrogate.
UNSUPPORTED = {
    "sqlite": set[str](),
    "duckdb": {"numeric(10,2)", "timestamp", "timestamptz", "json"},
    "postgresql": set[str](),
}


def has_vector() -> bool:
    """Whether the server brings the extension; Debian's has it in a package of its own."""
    with psycopg.connect(shared_endpoints().postgres_url or "") as connection:
        query = "select 1 from pg_available_extensions where name = 'vector'"
        return connection.execute(query).fetchone() is not None


def create(tables: dict[str, str]) -> str:
    return ";".join(f"create table {table} (id int primary key, v {name})" for table, name in tables.items())


def plain(value: Any) -> Any:
    """A value of the wire as JSON can have it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def expected(codec: Codec, text: str) -> Any:
    """What SQLite should have for a text of PostgreSQL."""
    value = codec.decode(text)
    if codec.name in ("array", "composite", "hstore"):
        return plain(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return int(value) if isinstance(value, bool) else value


def check_sqlite(it: Pair, table: str, codec: Codec, texts: dict[int, str]) -> None:
    for number, value in it.ask(f"select id, v from {table}"):
        found = json.loads(value) if codec.name in ("array", "composite") and value is not None else value
        wanted = expected(codec, texts[number])
        assert found == wanted, (table, texts[number])
        assert not isinstance(wanted, float) or math.copysign(1, found) == math.copysign(1, wanted)


def check_postgres(it: Pair, table: str, declared: str, texts: dict[int, str]) -> None:
    """What can be cast is cast back to the type that it is of."""
    [[kept]] = it.ask(f"select format_type(atttypid, atttypmod) from pg_attribute"
                      f" where attrelid = '{table}'::regclass and attname = 'v'")  # fmt: skip
    if kept == "text":
        return
    for number, text in it.ask(f"select id, v::text from {table}"):
        [[source]] = it.origin.sql(f"select v::text from {table} where id = {number}")
        assert text == source, (declared, texts[number])


@pytest.mark.parametrize("is_json", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_exact_or_refused_for_its_table_alone(kind: str, is_json: bool, tmp_path: Path) -> None:
    vector = "create extension if not exists vector schema pg_catalog;" if has_vector() else ""
    known = [name for name in ALL if vector or name != "vector"]
    declared = {f"v{number}": name for number, name in enumerate(known)}
    start = f"{vector} {TYPES}; {MORE_TYPES}; {create(declared)}"

    async def test() -> None:
        async with pair(kind, tmp_path, start, is_json=is_json) as it:
            it.origin.chunk_rows = 100
            for table, name in declared.items():
                it.origin.sql(f"insert into {table} values (0, null)")
                for number, text in enumerate(ALL[name], 1):
                    it.origin.sql(f"insert into {table} values (%s, %s::text::{name})", number, text)
            replica = await it.follow()
            refused = {declared[table.table] for table in replica.aside}
            assert refused == UNSUPPORTED[kind]
            # Again as changes: every row is written anew, and moves to another key.
            for table in declared:
                it.origin.sql(f"update {table} set id = id + 100; update {table} set id = id - 100")
            replica = await it.follow()
            assert {declared[table.table] for table in replica.aside} == UNSUPPORTED[kind]
            reports = {report.table.table: report for report in await it.reports()}
            kept = {table for table, name in declared.items() if name not in UNSUPPORTED[kind]}
            assert reports.keys() == declared.keys()
            for table, report in reports.items():
                assert report.is_exact == (table in kept), (declared[table], report.problem, report.differences)
            check(it, kind, {table: declared[table] for table in kept})

    run(test, 240)


def check(it: Pair, kind: str, declared: dict[str, str]) -> None:
    """By code that is not the replica's own."""
    types = read_types(it.origin.connection)
    for table, name in declared.items():
        found = it.origin.sql(f"select id, v::text from {table} where id > 0")
        copied = it.origin.connection.pgconn.exec_(f"select id, v from {table} where id > 0".encode())
        oid = copied.ftype(1)
        texts = {
            int(copied.get_value(row, 0) or b""): (copied.get_value(row, 1) or b"").decode()
            for row in range(copied.ntuples)
        }
        assert len(texts) == len(found)
        if kind == "sqlite":
            [[count]] = it.ask(f"select count(*) from {table} where v is null")
            assert count == 1
            check_sqlite(it, f"(select id, v from {table} where id > 0)", types.codec(oid), texts)
        elif kind == "postgresql":
            check_postgres(it, table, name, texts)
