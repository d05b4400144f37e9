"""What the reader learns of the catalog: at what price, and how soon."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.kernels.changes import RangeDecoder
from headgate.kernels.frames import SchemaFrame, TypesFrame
from headgate.sources.postgres_cdc.knowledge import Catalog, Knowledge
from headgate.sources.postgres_cdc.process import ReaderProcess
from headgate.sources.postgres_cdc.ranges import spool_buffers
from headgate.sources.postgres_cdc.schemas import read_book
from headgate.sources.postgres_cdc.spool import SpoolIndex, Transaction
from headgate.sources.postgres_cdc.type_book import read_types
from headgate.wire.pgoutput import LogicalMessage, Relation, RelationColumn, ReplicaIdentity
from tests.integration.cdc.conftest import Admin, every_version
from tests.integration.cdc.watching import messages, rows, wait_until

pytestmark = pytest.mark.timeout(120)

Start = Callable[..., ReaderProcess]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def told(spool: Path) -> list[dict[str, Any]]:
    """The descriptions in the spool, in order."""
    index = SpoolIndex(spool)
    index.refresh()
    found = []
    for part in index.slices(0, index.end_lsn):
        data = Path(part.path).read_bytes()[part.offset : part.offset + part.length]
        while data:
            (length,) = struct.unpack_from("<I", data)
            message, data = data[4 : 4 + length], data[4 + length :]
            if message[:1] == b"H" and TypesFrame.decode(message) is None:
                found.append(SchemaFrame.decode(message).description)
    return found


def gaps(spool: Path) -> list[dict[str, Any]]:
    found = [each for each in messages(spool) if isinstance(each, LogicalMessage) and each.prefix == "headgate.gap"]
    return [json.loads(each.content) for each in found]


def current(spool: Path) -> set[str]:
    book = read_book(spool)
    return {each.current["table"] for each in book.tables.values() if each.current} if book else set()


def columns(spool: Path, table: str) -> list[str]:
    book = read_book(spool)
    now = [each.current for each in book.tables.values()] if book else []
    return [column["name"] for each in now if each and each["table"] == table for column in each["columns"]]


# Many tables -----------------------------------------------------------------------------------------------------


class CountingCatalog(Catalog):
    """Counts what it is asked."""

    asked = 0

    def ask(self, question: Callable[..., Any]) -> Any:
        self.asked += 1
        return super().ask(question)


def cost_of_a_touch(admin: Admin, url: str, directory: Path, tables: int) -> tuple[float, float]:
    """Questions and bytes written, for the first row of a new shape in each of the last fifty tables."""
    directory.mkdir()
    admin.execute(f"do $$ begin for i in 1..{tables} loop execute format('create table m%s (id int primary key)', i);"
                  " end loop; end $$")  # fmt: skip
    oids = admin.execute("select oid::int8, relname from pg_class where relname ~ '^m[0-9]+$' order by oid").fetchall()
    assert len(oids) == tables
    catalog = CountingCatalog(url, ["everything"])
    knowledge = Knowledge(directory, catalog)
    try:
        knowledge.open(0)
        before, size = catalog.asked, (directory / "schemas.log").stat().st_size
        for number, (oid, name) in enumerate(oids[-50:], 1):
            admin.execute(f"alter table {name} add new text".encode())
            key = RelationColumn(is_key=True, name="id", type_id=23, type_modifier=-1)
            new = RelationColumn(is_key=False, name="new", type_id=25, type_modifier=-1)
            relation = Relation(oid, "public", name, ReplicaIdentity.DEFAULT, (key, new))
            assert knowledge.head(Transaction(number * 8 + 1, number * 8, 0, 7, 1), [relation], [])
            knowledge.sync()
        return (catalog.asked - before) / 50, ((directory / "schemas.log").stat().st_size - size) / 50
    finally:
        knowledge.close()


def test_the_first_touch_of_a_table_costs_the_same_among_many(admin: Admin, url: str, tmp_path: Path) -> None:
    admin.execute("create publication everything for all tables")
    few = cost_of_a_touch(admin, url, tmp_path / "few", 100)
    admin.execute("do $$ begin for i in 1..100 loop execute 'drop table m' || i; end loop; end $$")
    many = cost_of_a_touch(admin, url, tmp_path / "many", 1000)
    assert few[0] == many[0] == 1
    assert many[1] < 1.2 * few[1]


def test_types_are_loaded_only_when_a_table_uses_them(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute("create type pair as (x int, y text); create type unused as (z int); create domain twin as pair")
    admin.execute("create table uses (id int primary key, v twin[]); alter publication p add table uses")
    reader().ensure()
    admin.execute("insert into uses values (1, null)")
    wait_until(lambda: rows(spool) == 1)
    types = read_types(spool)
    known = {
        name: types.info(oid) is not None
        for oid, name in admin.execute("select oid::int8, typname from pg_type where oid >= 16384").fetchall()
    }
    assert {name for name, is_known in known.items() if is_known} == {"pair", "twin", "_twin"}


def test_a_connection_to_the_catalog_that_broke_is_made_anew(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("insert into t values (1, 'a')")
    wait_until(lambda: rows(spool) == 1)
    admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headgate'"
                  " and backend_type = 'client backend'")  # fmt: skip
    admin.execute("alter table t add more int; insert into t values (2, 'b', 3)")
    wait_until(lambda: rows(spool) == 2)
    assert [len(each["columns"]) for each in told(spool)] == [3]


# Partitions ------------------------------------------------------------------------------------------------------


PARTED = """
    create table parted (id int primary key, note text) partition by range (id);
    create table low partition of parted for values from (0) to (100);
    create table high partition of parted for values from (100) to (200)
"""


@every_version
def test_leaves_are_no_tables_where_the_root_is_published(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute(PARTED)
    admin.execute("create publication q for table parted with (publish_via_partition_root)")
    reader(publications=("q",)).ensure()
    admin.execute("insert into parted values (1, 'a'), (101, 'b')")
    admin.execute("create table more partition of parted for values from (200) to (300)")
    admin.execute("insert into parted values (201, 'c'); alter table parted add extra int; truncate parted")
    admin.execute("insert into parted values (2, 'd', 1)")
    wait_until(lambda: rows(spool) == 5)
    assert [each["table"] for each in told(spool)] == ["parted"]
    assert current(spool) == {"parted"}


@every_version
def test_leaves_are_tables_where_they_are_published(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute(PARTED)
    admin.execute("create publication q for table parted")
    reader(publications=("q",)).ensure()
    assert current(spool) == {"low", "high"}
    admin.execute("create table more partition of parted for values from (200) to (300)")
    admin.execute("insert into parted values (1, 'a'), (201, 'c')")
    wait_until(lambda: rows(spool) == 2)
    assert [each["table"] for each in told(spool)] == ["more"]
    admin.execute("alter table parted detach partition low")
    wait_until(lambda: current(spool) == {"high", "more"})


# Names -----------------------------------------------------------------------------------------------------------


@every_version
def test_a_name_that_another_relation_has_is_told(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute("create publication q for all tables; create table u (id bigint primary key, note text)")
    reader(publications=("q",)).ensure()
    admin.execute("insert into t values (1, 'a'); insert into u values (2, 'b')")
    oid = {
        name: number
        for number, name in admin.execute("select oid::int8, relname from pg_class where relname in ('t', 'u')")
    }
    # The same shape, another relation: swapped, swapped back, dropped and made again.
    admin.execute("begin; alter table t rename to w; alter table u rename to t; alter table w rename to u; commit")
    admin.execute("insert into t values (3, 'was u')")
    wait_until(lambda: rows(spool) == 3)
    admin.execute("begin; alter table t rename to w; alter table u rename to t; alter table w rename to u; commit")
    admin.execute("insert into t values (4, 'is t again')")
    wait_until(lambda: rows(spool) == 4)
    admin.execute("drop table t; create table t (id bigint primary key, note text); insert into t values (5, 'new')")
    wait_until(lambda: rows(spool) == 5)
    [(new,)] = admin.execute("select oid::int8 from pg_class where relname = 't'").fetchall()
    assert [(each["table"], each["relation_id"]) for each in told(spool)] == [
        ("t", oid["u"]), ("t", oid["t"]), ("t", new),
    ]  # fmt: skip


# What no row has told --------------------------------------------------------------------------------------------


@every_version
def test_a_published_table_is_known_before_any_row(admin: Admin, reader: Start, spool: Path) -> None:
    reader().ensure()
    admin.execute("create table later (id int primary key)")
    admin.execute("alter publication p add table later")
    wait_until(lambda: current(spool) == {"t", "later"})
    admin.execute("alter table later add b int; alter table later rename b to c; alter table later drop id")
    wait_until(lambda: columns(spool, "later") == ["c"])
    admin.execute("drop table later")
    wait_until(lambda: current(spool) == {"t"})
    assert gaps(spool) == []


@every_version
def test_a_table_that_was_away_from_the_publication_leaves_a_mark(admin: Admin, reader: Start, spool: Path) -> None:
    first = reader()
    first.ensure()
    admin.execute("alter publication p drop table t")
    wait_until(lambda: current(spool) == set())
    admin.execute("insert into t values (1, 'unseen'); alter publication p add table t")
    wait_until(lambda: len(gaps(spool)) == 1)
    assert gaps(spool) == [{"reason": "publication", "tables": [["public", "t"]]}]
    # Too fast to be seen away, and while nobody looks.
    first.stop()
    admin.execute("alter publication p drop table t; insert into t values (2, 'unseen')")
    admin.execute("alter publication p add table t")
    reader().ensure()
    wait_until(lambda: len(gaps(spool)) == 2)
    admin.execute("begin; alter publication p drop table t; alter publication p add table t where (id > 5); commit")
    wait_until(lambda: len(gaps(spool)) == 3)


@every_version
def test_a_missing_publication_takes_no_table_away(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute("create publication q for all tables")
    reader(publications=("p", "q")).ensure()
    admin.execute("drop publication q; drop publication p; create table unrelated (id int)")
    for _ in range(2):
        await_look(admin)
    assert "t" in current(spool)


def await_look(admin: Admin) -> None:
    """Until the reader has begun and ended a look into the catalog."""
    query = """select 1 from pg_stat_activity where usename = 'bridge' and backend_type = 'client backend'
               and query_start > %s and state = 'idle'"""
    [began] = admin.execute("select clock_timestamp()").fetchall()
    wait_until(lambda: admin.execute(query, began).fetchone() is not None)


# Types that are altered ------------------------------------------------------------------------------------------


TYPES = """
    create type pair as (x int, y text); create domain twin as pair;
    create table shapes (id int primary key, v pair, many twin[]);
    alter publication p add table shapes
"""


def values(spool: Path) -> list[dict[str, Any]]:
    """The rows in the spool as a batch that begins at its begin reads them."""
    index = SpoolIndex(spool)
    index.refresh()
    decoder = RangeDecoder(origin="o", relations=[], types=read_types(spool, 0))
    batches = decoder.decode(spool_buffers(index.slices(0, index.end_lsn)))
    events = [msgspec.msgpack.decode(payload.as_py()) for batch in batches for payload in batch.column("_payload")]
    return [each["data"] for each in events if each["operation"] == "INSERT"]


def install_trigger(admin: Admin) -> None:
    admin.execute(resources.files("headgate.sources.postgres_cdc").joinpath("ddl_trigger.sql").read_bytes())


@pytest.fixture
def triggered(admin: Admin) -> Iterator[Admin]:
    install_trigger(admin)
    yield admin
    admin.execute("drop schema headgate_ddl cascade")


@every_version
def test_an_altered_type_is_read_anew_within_moments(admin: Admin, reader: Start, spool: Path) -> None:
    admin.execute(TYPES)
    reader().ensure()
    admin.execute("insert into shapes values (1, '(1,a)', '{\"(2,b)\"}')")
    wait_until(lambda: rows(spool) == 1)
    admin.execute("alter type pair rename attribute x to z")
    wait_until(lambda: any("z" in str(read_types(spool).info(oid)) for oid in type_oids(admin)))
    wait_until(lambda: ["z", "y"] in fields(spool))
    admin.execute("insert into shapes values (2, '(1,a)', '{\"(2,b)\"}')")
    wait_until(lambda: rows(spool) == 2)
    assert [each["v"] for each in values(spool)] == [{"x": 1, "y": "a"}, {"z": 1, "y": "a"}]
    assert [each["many"] for each in values(spool)] == [[{"x": 2, "y": "b"}], [{"z": 2, "y": "b"}]]


def fields(spool: Path) -> list[list[str]]:
    """Names of the attributes of the composite columns that are described."""
    book = read_book(spool)
    now = [each.current for each in book.tables.values()] if book else []
    described = [column for each in now if each for column in each["columns"]]
    return [[field["name"] for field in column["fields"]] for column in described if column.get("fields")]


def type_oids(admin: Admin) -> list[int]:
    return [oid for (oid,) in admin.execute("select oid::int8 from pg_type where oid >= 16384").fetchall()]


@every_version
def test_with_the_trigger_an_altered_type_is_exact(triggered: Admin, reader: Start, spool: Path) -> None:
    triggered.execute(TYPES)
    first = reader()
    first.ensure()
    first.stop()
    # All of it while nobody reads: the stream alone says where the type changed.
    triggered.execute("insert into shapes values (1, '(1,a)')")
    triggered.execute("alter type pair rename attribute x to z")
    triggered.execute("insert into shapes values (2, '(1,a)')")
    triggered.execute("begin; alter type pair add attribute w int; insert into shapes values (3, '(1,a,5)'); commit")
    triggered.execute("alter type pair drop attribute y")
    triggered.execute("insert into shapes values (4, '(1,5)')")
    for _ in range(2):  # a replay is read in the same way
        process = reader()
        process.ensure()
        wait_until(lambda: len(values(spool)) == 4)
        assert [each["v"] for each in values(spool)] == [
            {"x": 1, "y": "a"}, {"z": 1, "y": "a"}, {"z": 1, "y": "a", "w": 5}, {"z": 1, "w": 5},
        ]  # fmt: skip
        process.stop()


# DDL that changes rows unseen ------------------------------------------------------------------------------------


@every_version
@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("alter table t alter note type text using note || '!'", ["t"]),  # the shape stays
        ("alter table t alter id type int", ["t"]),
        ("alter table t add at timestamptz default clock_timestamp()", ["t"]),
        ("alter table nested set unlogged; alter table nested set logged", ["nested"]),
        ("alter type mood rename value 'sad' to 'blue'", ["feels"]),
        ("alter type mood add value 'new'", []),
        ("alter type pair rename attribute x to z", ["nested"]),
        ("alter table parted attach partition lone for values from (300) to (400)", ["parted"]),
        ("alter table parted detach partition low", ["parted"]),
        ("do $$ begin execute 'alter table parted detach partition low'; end $$", ["parted"]),
        ("truncate low", ["low", "parted"]),
        ("drop table high", ["parted"]),
        ("create table next partition of parted for values from (200) to (300); truncate next", ["next", "parted"]),
        ("alter table parted add c int", []),
        ("create table x (id int); drop table x; create temp table y (id int); alter table y add a int", []),
    ],
)
def test_the_trigger_tells_what_changes_rows_unseen(
    triggered: Admin, reader: Start, spool: Path, statement: str, tables: list[str]
) -> None:
    triggered.execute(PARTED)
    triggered.execute("""
        create type mood as enum ('sad'); create type pair as (x int, y text);
        create table feels (id int primary key, m mood[]); create table nested (id int primary key, v pair);
        create table lone (id int not null, note text); insert into lone values (301, 'unseen');
        insert into parted values (1, 'a'), (101, 'b'); insert into t values (1, 'a');
    """)
    triggered.execute("create publication q for all tables with (publish_via_partition_root)")
    reader(publications=("q",)).ensure()
    triggered.execute(statement.encode())
    triggered.execute("select pg_logical_emit_message(true, 'end', '')")
    wait_until(lambda: any(isinstance(each, LogicalMessage) and each.prefix == "end" for each in messages(spool)))
    found = {name for gap in gaps(spool) for _, name in gap["tables"]}
    assert found == set(tables)
    assert {gap["reason"] for gap in gaps(spool)} <= {"rewrite"}


@every_version
def test_the_trigger_needs_no_rights_of_whoever_alters(triggered: Admin, reader: Start, spool: Path) -> None:
    triggered.execute("drop role if exists plain; create role plain; grant create, usage on schema public to plain")
    reader().ensure()
    try:
        triggered.execute("""
            set role plain;
            create function public.pg_logical_emit_message(boolean, text, text) returns int
                language sql as 'select 1/0';
            set search_path = public, pg_catalog;
            create table own (id int primary key) partition by range (id);
            create table own_leaf partition of own for values from (0) to (9);
            alter table own add note text; truncate own_leaf; drop table own_leaf; drop table own;
            reset role; reset search_path
        """)
        wait_until(lambda: bool(gaps(spool)))
    finally:
        triggered.execute("reset role; drop owned by plain cascade; drop role plain")
