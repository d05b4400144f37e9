"""Decoded events -> rows of one table."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headgate.model import DataError
from headgate.sources.typed import TypedColumn, TypedTable
from headgate.wire.pgtypes import TypeCatalog

INT, TEXT, DATE, FLOAT8, BYTEA = 23, 25, 1082, 701, 17
DAYS = pa.list_(pa.field("element", pa.date32()))
STAMP = pa.timestamp("us", tz="UTC")


def table(spark: str, arrow: pa.DataType, text_type: int = 0) -> TypedTable:
    key = TypedColumn("id", "int", pa.int32(), 0, is_key=True)
    return TypedTable("public", "t", (key, TypedColumn("v", spark, arrow, text_type)))


def batch(*events: tuple[str, dict[str, Any]], name: str = "t") -> pa.RecordBatch:
    count = len(events)
    return pa.RecordBatch.from_pydict(
        {
            "_op": [op for op, _ in events],
            "_schema": ["public"] * count,
            "_table": pa.array([name] * count, pa.string()),
            "_position": [f"{index:04}" for index in range(count)],
            "_commit_time": pa.array([datetime(2025, 1, 1, tzinfo=UTC)] * count, STAMP),
            "_xid": pa.array([7] * count, pa.int64()),
            "_payload": [msgspec.msgpack.encode(event) for _, event in events],
        }
    )


def inserted(of: TypedTable, *values: object) -> list[Any]:
    events = [("insert", {"data": {"id": 1, "v": value}}) for value in values]
    found: list[Any] = of.rows(batch(*events), TypeCatalog())["v"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("arrow", "values", "expected"),
    [
        (pa.bool_(), [True, None], [True, None]),
        (pa.int16(), [-32768, 7, None], [-32768, 7, None]),
        (pa.float32(), [1.5, float("inf")], [1.5, float("inf")]),
        (pa.decimal128(5, 2), ["1.10", "-999.99"], [Decimal("1.10"), Decimal("-999.99")]),
        (pa.binary(), [b"\xff", None], [b"\xff", None]),
        (pa.date32(), ["0001-01-01", "9999-12-31"], [date(1, 1, 1), date(9999, 12, 31)]),
        (STAMP, ["2025-12-12T12:00:34.338547Z"], [datetime(2025, 12, 12, 12, 0, 34, 338547, UTC)]),
        (pa.timestamp("us"), ["2025-12-12T12:00:34"], [datetime(2025, 12, 12, 12, 0, 34)]),
        (DAYS, [["2020-01-01", None], [], None], [[date(2020, 1, 1), None], [], None]),
        (pa.int32(), [None, None], [None, None]),
    ],
)
def test_values(arrow: pa.DataType, values: list[object], expected: list[object]) -> None:
    assert inserted(table("any", arrow), *values) == expected


@pytest.mark.parametrize(
    ("arrow", "value"),
    [
        (pa.date32(), "infinity"),
        (pa.date32(), "-0043-03-15"),
        (pa.date32(), "0000-03-15"),
        (pa.date32(), "+12345-06-07"),
        (pa.date32(), 20000),  # the column was retyped: no day since 1970
        (STAMP, "-infinity"),
        (STAMP, "0000-12-31T23:59:59Z"),
        (pa.timestamp("us"), "+10000-01-01T00:00:00"),
        (pa.decimal128(5, 2), "NaN"),
        (pa.decimal128(5, 2), "1000.00"),
        (pa.decimal128(5, 2), "0.001"),
        (pa.int16(), 32768),
        (pa.int32(), 1.5),
        (pa.int32(), "many"),
        (DAYS, ["0000-03-15"]),
        (DAYS, [["2020-01-01"]]),
        (DAYS, "[0:0]={2020-01-01}"),
        (pa.list_(pa.field("element", pa.string())), [["a"]]),
        (pa.list_(pa.field("element", pa.string())), "[0:0]={a}"),
    ],
)
def test_a_value_that_does_not_fit_is_named(arrow: pa.DataType, value: object) -> None:
    good = inserted(table("any", arrow), None)
    assert good == [None]
    with pytest.raises(DataError) as caught:
        inserted(table("any", arrow), None, value)
    assert caught.value.where == "public.t.v"
    assert repr(value) in caught.value.message
    assert "textColumns" in caught.value.remedy


def test_a_retyped_column_is_cast_where_that_loses_nothing() -> None:
    assert inserted(table("int", pa.int32()), 1, "42", 3.0) == [1, 42, 3]
    assert inserted(table("string", pa.string(), TEXT), "a", 42) == ["a", "42"]


@pytest.mark.parametrize(
    ("oid", "value", "text"),
    [
        (DATE, "-0043-03-15", "0044-03-15 BC"),
        (FLOAT8, float("nan"), "NaN"),
        (BYTEA, b"\x00\xff", r"\x00ff"),
        (1007, [[1, None], [2, 3]], "{{1,NULL},{2,3}}"),
        (1007, "[0:1]={7,8}", "[0:1]={7,8}"),
        (16, True, "t"),
        (3802, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_string_column_has_the_text_of_postgresql(oid: int, value: object, text: str) -> None:
    assert inserted(table("string", pa.string(), oid), value, None) == [text, None]


def test_the_rows_of_each_operation() -> None:
    events = batch(
        ("insert", {"data": {"id": 1, "v": "a", "new": 5}}),
        ("update", {"data": {"id": 1}}),
        ("update", {"data": {"id": 1, "v": None}}),
        ("update", {"data": {"id": 1}, "old": {"id": 1, "v": "full"}}),
        ("update", {"data": {"id": 2}, "old": {"id": 1}}),
        ("delete", {"data": {"id": 2}}),
        ("truncate", {"data": {"cascade": False}}),
    )
    found = table("string", pa.string(), TEXT).rows(events, TypeCatalog())
    names = ("_op", "id", "v", "_unchanged", "_position")
    assert list(zip(*(found[name].to_pylist() for name in names), strict=True)) == [
        ("insert", 1, "a", [], "0000"),
        ("update", 1, None, ["v"], "0001"),
        ("update", 1, None, [], "0002"),
        ("update", 1, "full", [], "0003"),
        ("delete", 1, None, [], "0004"),
        ("update", 2, None, ["v"], "0004"),
        ("delete", 2, None, [], "0005"),
        ("truncate", None, None, [], "0006"),
    ]


def test_other_tables_are_left_out_and_the_schema_stays() -> None:
    of = table("string", pa.string(), TEXT)
    found = of.rows(batch(("insert", {"data": {"id": 1}}), name="other"), TypeCatalog())
    assert (found.num_rows, found.schema) == (0, of.arrow_schema)


def test_a_table_survives_pickling_and_quotes_its_names() -> None:
    of = TypedTable("public", "t", (TypedColumn("a`b", "int", pa.int32(), 0),))
    assert pickle.loads(pickle.dumps(of)) == of
    assert of.ddl.startswith("`a``b` int, _op string, _position string, _commit_time timestamp, _xid bigint, ")
