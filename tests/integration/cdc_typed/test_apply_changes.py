"""`apply_changes` against a real PostgreSQL: the table on files equals the table in the server."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headgate.model import StateError, UsageError
from headgate.pipeline import apply_changes as module
from headgate.pipeline.apply_changes import apply_changes, merge_batch, read_applied
from tests.integration.cdc_typed.conftest import Shop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SCHEMA = "id int, note string, _op string, _position string, _unchanged array<string>"
Change = tuple[int | None, str | None, str, str, list[str]]


def random_statements(shop: Shop, rng: random.Random, count: int) -> None:
    """Changes of a table with a key of two columns and a large value that most updates leave alone."""
    for _ in range(count):
        a, b, other = rng.randrange(4), rng.choice("xy"), rng.randrange(4)
        kind = rng.choices(["put", "note", "big", "move", "delete", "truncate"], [6, 6, 2, 5, 2, 0.4])[0]
        where = [a, b]
        if kind == "put":
            statement = "insert into orders values (%s, %s, %s, repeat(%s, 9000), now()) on conflict do nothing"
            shop.admin.execute(statement, [*where, str(rng.random()), rng.choice("pqr")])
        elif kind == "note":
            shop.admin.execute("update orders set note = %s where (a, b) = (%s, %s)", [str(rng.random()), *where])
        elif kind == "big":
            shop.admin.execute("update orders set big = null where (a, b) = (%s, %s)", where)
        elif kind == "move":
            free = "not exists (select 1 from orders where (a, b) = (%s, %s))"
            shop.admin.execute(
                f"update orders set a = %s where (a, b) = (%s, %s) and {free}".encode(), [other, *where, other, b]
            )
        elif kind == "delete":
            shop.admin.execute("delete from orders where (a, b) = (%s, %s)", where)
        else:
            shop.execute("truncate orders")


def source_rows(shop: Shop) -> list[tuple[Any, ...]]:
    rows = shop.admin.execute("select a, b, note, md5(big), extract(epoch from at) * 1000000 from orders").fetchall()
    return sorted((*row[:4], int(row[4])) for row in rows)


def applied_rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    selected = read_applied(spark, table).selectExpr("a", "b", "note", "md5(cast(big as binary))", "unix_micros(at)")
    return sorted(tuple(row) for row in selected.collect())


def run(shop: Shop, writer: DataStreamWriter) -> None:
    checkpoint = str(shop.directory / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()


def test_the_table_equals_the_source_after_random_changes(shop: Shop, tmp_path: Path) -> None:
    rng = random.Random(20250131)
    table = str(tmp_path / "orders")
    shop.execute("create table orders (a int, b text, note text, big text, at timestamptz, primary key (a, b))")
    shop.execute("alter table orders alter big set storage external")
    changes = shop.open(maxOffsetsPerTrigger="35")

    def twice(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            merge_batch(batch, batch_id, table=table, keys=["a", "b"])

    for writer in (apply_changes(changes, table, ["a", "b"]), changes.writeStream.foreachBatch(twice)):
        random_statements(shop, rng, 70)
        shop.execute("insert into orders values (9, 'z', 'n', 'b', now()) on conflict do nothing")
        run(shop, writer)
        assert applied_rows(shop.spark, table) == source_rows(shop) != []
    assert len(list(Path(table).glob("v*"))) == 2


def frame(spark: SparkSession, *rows: Change) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def notes(spark: SparkSession, table: str) -> dict[int, str | None]:
    return {row["id"]: row["note"] for row in read_applied(spark, table).collect()}


def test_a_crash_before_the_switch_and_a_replay_change_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = str(tmp_path / "t")
    first = frame(spark, (1, "a", "insert", "1", []), (2, "b", "insert", "2", []))
    second = frame(spark, (1, None, "update", "3", ["note"]), (2, None, "delete", "4", []), (3, "c", "insert", "5", []))
    merge_batch(first, 0, table=table, keys=["id"])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "replace_file", crash)
        with pytest.raises(KeyboardInterrupt):
            merge_batch(second, 1, table=table, keys=["id"])
    assert notes(spark, table) == {1: "a", 2: "b"}
    for batch in (second, first, second):
        merge_batch(batch, 1, table=table, keys=["id"])
        assert notes(spark, table) == {1: "a", 3: "c"}


def test_values_follow_a_row_through_changes_of_its_key(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    merge_batch(frame(spark, (1, "a", "insert", "1", []), (2, "b", "insert", "2", [])), 0, table=table, keys=["id"])
    moves = frame(
        spark,
        (3, None, "update", "3", ["note"]),  # comes before its delete: the position counts
        (1, None, "delete", "3", []),
        (2, None, "delete", "4", []),
        (1, None, "update", "4", ["note"]),
        (3, None, "delete", "5", []),
        (2, None, "update", "5", ["note"]),
    )
    merge_batch(moves, 1, table=table, keys=["id"])
    assert notes(spark, table) == {1: "b", 2: "a"}


def test_a_truncate_removes_what_was_before_it(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    merge_batch(frame(spark, (1, "a", "insert", "1", [])), 0, table=table, keys=["id"])
    changes: tuple[Change, ...] = (
        (2, "b", "insert", "2", []),
        (None, None, "truncate", "3", []),
        (3, "c", "insert", "4", []),
    )
    merge_batch(frame(spark, *changes), 1, table=table, keys=["id"])
    assert notes(spark, table) == {3: "c"}
    merge_batch(frame(spark, (None, None, "truncate", "5", [])), 2, table=table, keys=["id"])
    assert notes(spark, table) == {}


def test_what_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    with pytest.raises(StateError, match="no changes"):
        read_applied(spark, table)
    batch = frame(spark, (1, "a", "insert", "1", []))
    for keys in (["nope"], [], ["_unchanged"]):
        with pytest.raises(UsageError):
            merge_batch(batch, 0, table=table, keys=keys)
    merge_batch(batch, 0, table=table, keys=["id"])
    with pytest.raises(StateError, match="note was string and is now int"):
        merge_batch(
            spark.createDataFrame([(1, 2, "insert", "2", [])], SCHEMA.replace("note string", "note int")),
            1,
            table=table,
            keys=["id"],
        )
    wider_schema = SCHEMA.replace("_op", "extra int, _op")
    wider = spark.createDataFrame([(2, "b", 5, "insert", "2", [])], wider_schema)
    merge_batch(wider, 1, table=table, keys=["id"])
    assert {tuple(row) for row in read_applied(spark, table).collect()} == {(1, "a", None), (2, "b", 5)}
