"""The typed shape of `pgcdc` through Spark, from a real PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from headgate.model import DataError, HeadgateError
from tests.integration.cdc_typed.conftest import Shop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

OWN_COLUMNS = -5  # before the reserved ones


def test_every_type_has_its_spark_type_and_value(shop: Shop) -> None:
    shop.execute("create type mood as enum ('sad', 'ok'); create type pair as (a int, b text)")
    shop.execute("create domain price as numeric(12,3) check (value >= 0)")
    shop.execute("""
        create table orders (
            id bigint primary key, flag bool, small smallint, whole int, ref oid, f4 real, f8 float8,
            exact numeric(10,2), huge numeric(40,2), loose numeric, cost price, word text, code varchar(9), pad char(4),
            raw bytea, day date, at timestamptz, local timestamp, doc jsonb, doc0 json, key uuid, span interval,
            clock timetz, feeling mood, both_ pair, "range" int4range, tags text[], numbers int[], days date[],
            prices numeric(6,1)[], keys uuid[], blobs bytea[], whens timestamptz[], "odd `name.x" int,
            half int generated always as (whole / 2) stored)
    """)
    changes = shop.open()
    assert {each.name: each.dataType.simpleString() for each in changes.schema} == {
        "id": "bigint", "flag": "boolean", "small": "smallint", "whole": "int", "ref": "bigint", "f4": "float",
        "f8": "double", "exact": "decimal(10,2)", "huge": "string", "loose": "string", "cost": "decimal(12,3)",
        "word": "string", "code": "string", "pad": "string", "raw": "binary", "day": "date", "at": "timestamp",
        "local": "timestamp_ntz", "doc": "string", "doc0": "string", "key": "string", "span": "string",
        "clock": "string", "feeling": "string", "both_": "string", "range": "string", "tags": "array<string>",
        "numbers": "array<int>", "days": "array<date>", "prices": "array<decimal(6,1)>", "keys": "array<string>",
        "blobs": "array<binary>", "whens": "array<timestamp>", "odd `name.x": "int", "_op": "string",
        "_position": "string", "_commit_time": "timestamp", "_xid": "bigint", "_unchanged": "array<string>",
    }  # fmt: skip
    started = datetime.now(UTC).timestamp()
    shop.execute(r"""
        insert into orders values (
            9223372036854775807, true, -32768, 2147483647, 4294967295, 1.5, 1e300,
            -99999999.99, 12345678901234567890123456789012345678.25, 'NaN', 1.125, E'l1\nl2 \u00e9"\\', '', 'ab',
            '\x00ff', '0001-01-01', '2024-02-29 23:59:59.999999+02', '9999-12-31 23:59:59.999999',
            '{"b": [1, null], "a": "x"}', '{"b":1,  "b":2}', '00000000-0000-0000-0000-00000000000a', '1 mon -1 day',
            '12:00:00+02', 'ok', row(1, 'a b'), '[1,5)', '{a,NULL,"NULL",""}', '{}', '{2020-01-01,NULL}',
            '{1.5,-2.0}', '{00000000-0000-0000-0000-00000000000a}', '{"\\x01"}', '{"2024-01-01 00:00:00+00"}', 7)
    """)
    shop.execute("insert into orders (id, f4, f8) values (1, 'NaN', '-Infinity')")
    # Instants are compared as text in UTC: collect() would turn them into the local time of this machine.
    commit = sf.unix_micros("_commit_time")
    stamp = sf.date_format(sf.to_utc_timestamp("at", sf.current_timezone()), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    full, sparse = shop.drain(
        changes.withColumn("at", stamp).withColumn("whens", sf.size("whens")).withColumn("_commit_time", commit)
    )
    values = full.asDict()
    assert tuple(full)[:OWN_COLUMNS] == (
        2**63 - 1, True, -32768, 2**31 - 1, 2**32 - 1, 1.5, 1e300,
        Decimal("-99999999.99"), "12345678901234567890123456789012345678.25", "NaN", Decimal("1.125"),
        'l1\nl2 é"\\', "", "ab  ", b"\x00\xff", date(1, 1, 1), "2024-02-29 21:59:59.999999",
        datetime(9999, 12, 31, 23, 59, 59, 999999), '{"a": "x", "b": [1, null]}', '{"b":1,  "b":2}',
        "00000000-0000-0000-0000-00000000000a", "P1M-1D", "12:00:00+02", "ok", '(1,"a b")', "[1,5)",
        ["a", None, "NULL", ""], [], [date(2020, 1, 1), None], [Decimal("1.5"), Decimal("-2.0")],
        ["00000000-0000-0000-0000-00000000000a"], [b"\x01"], 1, 7,
    )  # fmt: skip
    assert (values["_op"], values["_unchanged"]) == ("insert", [])
    assert values["_position"] < sparse["_position"]
    assert started <= values["_commit_time"] / 1e6 <= datetime.now(UTC).timestamp()
    assert str(sparse["f4"]) == "nan"
    assert sparse["f8"] == float("-inf")
    assert all(
        sparse[name] is None for name in changes.columns[:OWN_COLUMNS] if name not in ("id", "f4", "f8", "whens")
    )


def test_updates_deletes_and_truncates(shop: Shop) -> None:
    shop.execute("create table orders (a int, b text, note text, big text, primary key (a, b))")
    shop.execute("create table other (id int primary key)")
    shop.execute("alter table orders alter big set storage external")
    changes = shop.open()
    shop.execute("insert into orders values (1, 'x', 'n', repeat('z', 9000)); insert into other values (1)")
    shop.execute("update orders set note = null")
    shop.execute("update orders set b = 'y'")
    shop.execute("delete from orders")
    shop.execute("truncate orders, other")
    found = shop.drain(changes)
    big = "z" * 9000
    assert [(r["_op"], r["a"], r["b"], r["note"], r["big"], r["_unchanged"]) for r in found] == [
        ("insert", 1, "x", "n", big, []),
        ("update", 1, "x", None, None, ["big"]),
        ("delete", 1, "x", None, None, []),
        ("update", 1, "y", None, None, ["big"]),
        ("delete", 1, "y", None, None, []),
        ("truncate", None, None, None, None, []),
    ]
    assert found[2]["_position"] == found[3]["_position"]
    assert len({r["_position"] for r in found}) == 5


def test_a_full_identity_tells_what_an_update_did_not_send(shop: Shop) -> None:
    shop.execute("create table orders (id int primary key, note text, big text)")
    shop.execute("alter table orders replica identity full; alter table orders alter big set storage external")
    changes = shop.open()
    shop.execute("insert into orders values (1, 'n', repeat('z', 9000)); update orders set note = 'm'")
    shop.execute("delete from orders")
    found = [(r["_op"], r["note"], r["big"], r["_unchanged"]) for r in shop.drain(changes)]
    big = "z" * 9000
    assert found == [("insert", "n", big, []), ("update", "m", big, []), ("delete", "m", big, [])]


def test_columns_that_come_and_go_while_the_query_runs(shop: Shop) -> None:
    shop.execute("create table orders (id int primary key, gone text, wide int)")
    changes = shop.open()
    shop.execute("insert into orders values (1, 'g', 1)")
    shop.execute("alter table orders add extra text; alter table orders drop gone")
    shop.execute("insert into orders values (2, 2, 'e')")
    shop.execute("alter table orders alter wide type bigint")
    shop.execute("insert into orders values (3, 3, 'f')")
    assert [(r["id"], r["gone"], r["wide"]) for r in shop.drain(changes)] == [(1, "g", 1), (2, None, 2), (3, None, 3)]
    assert shop.open().columns[:OWN_COLUMNS] == ["id", "wide", "extra"]
    shop.execute("insert into orders values (4, 2147483648, 'f')")
    error = _failure(shop, changes)
    assert error.where == f"{shop.name}.orders.wide"
    assert "2147483648" in error.message


def test_what_spark_cannot_hold_is_refused_and_can_be_read_as_text(shop: Shop) -> None:
    shop.execute("create table orders (id int primary key, day date)")
    changes = shop.open()
    shop.execute("insert into orders values (1, '0044-03-15 BC'), (2, 'infinity')")
    error = _failure(shop, changes)
    assert isinstance(error, DataError)
    assert error.where == f"{shop.name}.orders.day"
    assert "textColumns" in error.remedy
    assert [r["day"] for r in shop.drain(shop.open(textColumns="day"))] == ["0044-03-15 BC", "infinity"]


def _failure(shop: Shop, changes: DataFrame) -> HeadgateError:
    with pytest.raises(StreamingQueryException) as caught:
        shop.drain(changes)
    error = HeadgateError.from_text(str(caught.value))
    assert error is not None
    return error


def test_unknown_tables_and_columns_are_refused(shop: Shop) -> None:
    with pytest.raises(Exception, match="there is no table"):
        shop.open()
    shop.execute("create table orders (id int primary key)")
    with pytest.raises(Exception, match="textColumns names nope"):
        shop.open(textColumns="id, nope")
