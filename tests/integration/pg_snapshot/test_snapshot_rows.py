"""A row of a snapshot has the bytes that `data` of its Insert event has, whatever its type and its table."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.options import RowFormat
from headgate.sources.postgres_snapshot.reading import read_range
from headgate.wire.pgtypes import BUILTIN_TYPES
from tests.cdc import values
from tests.integration.cdc_decode.test_cdc_decode_server import VALUES
from tests.integration.pg_snapshot.source import FORMATS, Source, data_of


def check(source: Source, directory: Path, table: str, *, ranges: int = 1) -> list[bytes]:
    """Both formats; the rows in MessagePack."""
    for form in FORMATS[::-1]:
        streamed = [data_of(payload, form) for payload in source.streamed(directory / form, form, table)]
        rows = source.rows(table, form, ranges=ranges)
        assert sorted(rows) == sorted(streamed)
    return rows


def decoded(rows: list[bytes]) -> list[dict[str, object]]:
    return [msgspec.msgpack.decode(row) for row in rows]


def test_every_builtin_type(source: Source, tmp_path: Path) -> None:
    names = sorted(info.name for info in BUILTIN_TYPES.values())
    columns = ", ".join(f'"of_{name}" pg_catalog."{name}"' for name in names)
    source.sql(f"create table every (id int primary key, {columns})")
    wanted = [(name, text) for name, texts in VALUES.items() for text in texts]
    for number, (name, text) in enumerate(wanted):
        source.sql(f'insert into every (id, "of_{name}") values (%s, %s::text::pg_catalog."{name}")', number, text)
    rows = check(source, tmp_path, "every")
    assert len(rows) == len(wanted)
    assert all(len(row) == len(names) + 1 for row in decoded(rows))


def test_random_values_types_of_ones_own_and_hostile_text(source: Source, tmp_path: Path) -> None:
    rng = random.Random(7)
    source.sql("create type mood as enum ('sad', 'it''s \"ok\"'); create type pair as (a int, \"b c\" text)")
    source.sql("create domain stamp as timestamptz; create domain pairs as pair[]")
    source.sql(
        'create table sample (n numeric, f float8, t text, "odd ""name.\t" text, j jsonb, k json, i int[], x text[],'
        " b bytea, at stamp, d date, s interval, m mood, p pair, ps pairs, big text)"
    )
    makers = [
        values.numeric, values.float8, values.word, values.word, values.json_text, values.json_text, values.int_array,
        values.text_array, values.bytea, values.timestamptz, values.date, values.interval,
        values.one_of("sad", 'it\'s "ok"'), values.one_of('(1,"a, ""b"" \\\\ \t")', "(,)"),
        values.one_of('{"(1,x)",NULL}', "{}"), values.large_text,
    ]  # fmt: skip
    marks = ", ".join(["%s"] * len(makers))
    for _ in range(120):
        row = [values.nullable(maker)(rng) for maker in makers]
        source.sql(f"insert into sample values ({marks})", *row)
    assert len(check(source, tmp_path, "sample", ranges=5)) == 120


def test_every_character_that_copy_escapes_or_does_not(source: Source, tmp_path: Path) -> None:
    source.sql("create table texts (n int, a text, b text)")
    characters = [*map(chr, range(1, 129)), "\x85", "\u2028", "\uffff", "\U0010ffff"]
    for number, character in enumerate(characters):
        source.sql("insert into texts values (%s, %s, %s)", number, character, f"x{character}\\{character * 9}N")
    special = ["", "\\N", "\\.", "\\", "\\\\N", "a\\tb", "\n", "\t\t", "N", "\\x41", "\\101"]
    for number, text in enumerate(special):
        source.sql("insert into texts values (%s, %s, null)", -number, text)
    rows = decoded(check(source, tmp_path, "texts"))
    assert [row["a"] for row in rows] == characters + special


@pytest.mark.parametrize(
    ("definition", "inserted"),
    [
        ("a int, b text, v text, primary key (a, b)", "(-1, '', 'x'), (0, ' ', null), (2147483647, 'b', '')"),
        ("a int, b text, v text", "(null, null, null), (1, '', ''), (1, '', '')"),
        ("k text primary key", "(''), (' '), ('-1')"),
        ("k bigint primary key", "(-9223372036854775808), (-1), (0)"),
    ],
)
def test_keys_of_all_sorts(source: Source, tmp_path: Path, definition: str, inserted: str) -> None:
    source.sql(f"create table keyed ({definition})")
    source.sql(f"insert into keyed values {inserted}")
    assert len(check(source, tmp_path, "keyed")) == 3


def test_generated_columns_are_left_out_or_not_as_in_the_stream(source: Source, tmp_path: Path) -> None:
    [[version]] = source.sql("select current_setting('server_version_num')::int")
    if version < 180000:
        pytest.skip("generated columns are published, and virtual, since PostgreSQL 18")
    source.sql(
        "create table made (id int primary key, a int, double int generated always as (a * 2) stored,"
        " triple int generated always as (a * 3) virtual, b text)"
    )
    source.publish("stored", "for table made with (publish_generated_columns = stored)")
    source.sql("insert into made (id, a, b) values (1, 5, 'x')")
    assert decoded(check(source, tmp_path, "made")) == [{"id": 1, "a": 5, "double": 10, "b": "x"}]
    source.publications = (source.name,)
    assert decoded(check(source, tmp_path / "without", "made")) == [{"id": 1, "a": 5, "b": "x"}]


def test_a_partitioned_table_is_its_leaves_under_its_own_name(source: Source, tmp_path: Path) -> None:
    source.publish("root", "with (publish_via_partition_root)")
    source.sql("create table parted (id int, region text, note text) partition by list (region)")
    source.sql("create table north partition of parted for values in ('n') partition by range (id)")
    source.sql("create table north_low partition of north for values from (0) to (100)")
    source.sql("create table south (note text, gone int, id int, region text)")
    source.sql("alter table south drop gone; alter table parted attach partition south for values in ('s')")
    source.sql(f"alter publication {source.made[0]} add table parted")
    source.sql("insert into parted select g, (array['n', 's'])[g % 2 + 1], 'x' || g from generate_series(1, 50) g")
    rows = decoded(check(source, tmp_path, "parted", ranges=3))
    assert {frozenset(row) for row in rows} == {frozenset(("id", "region", "note"))}
    assert sorted(row["id"] for row in rows) == list(range(1, 51))  # type: ignore[type-var]
    assert {leaf.name for leaf in source.plan("parted").leaves} == {"north_low", "south"}


def test_nothing_and_no_columns(source: Source, tmp_path: Path) -> None:
    source.sql("create table nothing (id int)")
    assert check(source, tmp_path, "nothing", ranges=4) == []
    source.sql("create table bare ()")
    source.sql("insert into bare default values; insert into bare default values")
    assert decoded(check(source, tmp_path / "bare", "bare")) == [{}, {}]


def test_rows_larger_than_any_buffer(source: Source, tmp_path: Path) -> None:
    source.sql("create table large (id int, t text, b bytea)")
    source.sql(
        "insert into large select g, repeat(E'x\\t\\\\\\n\\u00e9', g * 200000),"
        " decode(repeat('00ff', g * 300000), 'hex') from generate_series(0, 3) g"
    )
    assert max(map(len, check(source, tmp_path, "large"))) > 3 << 20


def test_lists_of_columns_and_filters_of_rows(source: Source, tmp_path: Path) -> None:
    source.sql("create table picked (id int primary key, a text, b text, c text)")
    source.publish("some", "for table picked (id, c, a) where (c = 'l' and a <> 'it''s')")
    source.publish("others", "for table picked (id, c, a) where (id = 3)")
    source.publish("all", "for table picked (id, c, a)")
    source.sql("insert into picked values (1, 'x', 'y', 'l'), (2, 'x', 'y', 's'), (3, 'it''s', 'y', 'l')")
    source.publications = tuple(source.made[:1])
    assert decoded(check(source, tmp_path, "picked", ranges=2)) == [{"id": 1, "a": "x", "c": "l"}]
    for count, ids in ((2, [1, 3]), (3, [1, 2, 3])):
        source.publications = tuple(source.made[:count])
        assert [row["id"] for row in decoded(check(source, tmp_path / str(count), "picked"))] == ids


@pytest.mark.parametrize("form", FORMATS)
def test_ranges_have_every_row_once(source: Source, form: RowFormat) -> None:
    source.sql("create table many (id int primary key, t text) with (fillfactor = 50)")
    source.sql("insert into many select g, repeat('x', g % 500) from generate_series(1, 6000) g")
    source.sql("update many set t = 'new' where id % 3 = 0; delete from many where id % 7 = 0")
    ((wanted,),) = source.sql("select count(*) from many")
    whole = source.rows("many", form)
    assert len(whole) == len(set(whole)) == wanted
    for ranges in (2, 7, 30):
        assert len(source.plan("many").ranges(ranges, least_blocks=1)) == ranges
        assert sorted(source.rows("many", form, ranges=ranges)) == sorted(whole)
    assert len(source.plan("many").ranges(30)) == 1


def test_batches_have_the_rows_or_bytes_that_were_asked_for(source: Source) -> None:
    source.sql("create table many (id int primary key, t text)")
    source.sql("insert into many select g, repeat('x', 1000) from generate_series(1, 5000) g")
    with source.point("many") as point:
        plan = source.plan("many")
        range_ = SnapshotRange(plan, plan.ranges(1)[0], point.snapshot_name)
        cases: list[tuple[dict[str, Any], list[int]]] = [
            ({"batch_rows": 2100}, [2100, 2100, 800]),
            ({"batch_rows": 5000, "batch_bytes": 1 << 30}, [5000]),
            ({"batch_rows": 1}, [1] * 5000),
        ]
        for asked, sizes in cases:
            assert [batch.num_rows for batch in read_range(source.options("many", **asked), range_)] == sizes
        few = [batch.num_rows for batch in read_range(source.options("many", batch_bytes=1 << 20), range_)]
    assert sum(few) == 5000
    assert all(1000 < size < 1200 for size in few[:-1])


def test_old_style_inheritance_is_not_followed(source: Source, tmp_path: Path) -> None:
    """A child's changes come under the child's name."""
    source.sql("create table parent (id int); create table child (extra int) inherits (parent)")
    source.sql("insert into parent values (1); insert into child values (2, 3)")
    assert decoded(check(source, tmp_path, "parent")) == [{"id": 1}]
    assert decoded(check(source, tmp_path / "child", "child")) == [{"id": 2, "extra": 3}]
