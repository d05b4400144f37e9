"""The random source computes the same rows whatever the batches were."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.model import Position, UsageError
from headgate.sources.random.datasource import RandomStreamReader, RowRange
from headgate.sources.random.generator import KINDS, generate, position_column
from headgate.sources.random.options import RandomOptions


def rows(start: int, end: int, seed: int = 1) -> pa.RecordBatch:
    return generate(start, end, seed=seed, customers=10, payload_bytes=13)


@given(st.integers(0, 10_000), st.integers(0, 50), st.integers(0, 50))
def test_a_row_depends_on_its_number_alone(start: int, a: int, b: int) -> None:
    whole = rows(start, start + a + b)
    parts = [*rows(start, start + a).to_pylist(), *rows(start + a, start + a + b).to_pylist()]
    assert whole.to_pylist() == parts


def test_rows_look_like_orders() -> None:
    batch = rows(0, 5000)
    assert set(batch.column("kind").to_pylist()) == set(KINDS)
    assert set(batch.column("customer").to_pylist()) == set(range(10))
    assert {len(note) for note in batch.column("note").to_pylist()} == {13}
    assert rows(0, 50, seed=2) != rows(0, 50)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_positions_are_those_of_the_model(numbers: list[int]) -> None:
    column = position_column(np.array(numbers, dtype=np.uint64))
    assert column.to_pylist() == [str(Position(number)) for number in numbers]


def reader(**options: int) -> RandomStreamReader:
    return RandomStreamReader(RandomOptions(**{"rows_per_second": 0, "num_rows": 100, **options}))


def test_read_limit_and_the_order_to_ignore_it() -> None:
    source = reader(max_offsets_per_trigger=30)
    assert source.getDefaultReadLimit() == ReadMaxRows(30)
    assert source.latestOffset({"row": 0}, ReadMaxRows(30)) == {"row": 30}
    assert source.latestOffset({"row": 90}, ReadMaxRows(30)) == {"row": 100}
    assert source.latestOffset({"row": 0}, ReadAllAvailable()) == {"row": 100}
    assert source.latestOffset({"row": 100}, ReadAllAvailable()) == {"row": 100}


def test_available_now_ends() -> None:
    endless = reader(rows_per_second=50, num_rows=0)
    endless.prepareForTriggerAvailableNow()
    assert endless.latestOffset({"row": 7}, ReadAllAvailable()) == {"row": 57}
    assert endless.latestOffset({"row": 57}, ReadAllAvailable()) == {"row": 57}


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 8))
def test_partitions_cover_the_range_once(start: int, length: int, count: int) -> None:
    parts = reader(min_partitions=count).partitions({"row": start}, {"row": start + length})
    covered = [n for part in parts if isinstance(part, RowRange) for n in range(part.start, part.end)]
    assert covered == list(range(start, start + length))
    assert len(parts) <= count


def test_read_gives_the_partition_after_a_trip_through_pickle() -> None:
    source: RandomStreamReader = pickle.loads(pickle.dumps(reader()))
    table = pa.Table.from_batches(source.read(RowRange(5, 20_000)))
    assert table.column("id").to_pylist() == list(range(5, 20_000))


@pytest.mark.parametrize(
    ("options", "message", "remedy"),
    [
        ({"rowspersecnd": "1"}, "unknown option rowspersecnd", "rowsPerSecond"),
        ({"zzz": "1"}, "unknown option zzz", "known options: customers"),
        ({"numrows": "many"}, "option numRows is 'many'", "whole number"),
        ({"numrows": "-1"}, "option numRows is '-1'", "whole number"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], message: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        RandomOptions.from_spark(options)
    assert remedy in caught.value.remedy
