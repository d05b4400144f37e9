"""How a table is cut into ranges, and what is asked for each."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import UsageError
from headgate.sources.postgres_snapshot.blockers import RunningTransaction, blocked
from headgate.sources.postgres_snapshot.copying import SnapshotRange
from headgate.sources.postgres_snapshot.options import SnapshotOptions
from headgate.sources.postgres_snapshot.plan import Leaf, SnapshotTable, quoted_name, table_name
from headgate.sources.postgres_snapshot.reading import located, located_ranges
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity

COLUMNS = (RelationColumn(True, "id", 20, -1), RelationColumn(False, 'odd "x"', 25, -1))


def table(*blocks: int, row_filter: str = "") -> SnapshotTable:
    leaves = tuple(Leaf("s", f"leaf{number}", count) for number, count in enumerate(blocks))
    return SnapshotTable(Relation(1, "s", "t", ReplicaIdentity.DEFAULT, COLUMNS), (), row_filter, leaves)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.integers(0, 300), st.integers(1, 5000))
def test_ranges_follow_each_other_and_are_of_one_size(blocks: list[int], count: int, least: int) -> None:
    parts = table(*blocks).ranges(count, least)
    assert [part.number for part in parts] == list(range(len(parts)))
    assert len(parts) <= 1.5 * max(count, 1) + len(blocks)
    for number, size in enumerate(blocks):
        own = [part for part in parts if part.leaf.name == f"leaf{number}"]
        assert own[0].first == 0
        assert [part.end for part in own] == [*(part.first for part in own[1:]), None]
        sizes = [(size if part.end is None else part.end) - part.first for part in own]
        assert max(sizes) - min(sizes) <= 1
        assert len(own) == 1 or min(sizes) >= least // 2


def test_a_small_table_is_one_range_and_a_table_without_partitions_is_none() -> None:
    assert len(table(1500).ranges(8)) == 1
    assert len(table(8 * 1024).ranges(8)) == 8
    assert table().ranges(8) == []


def test_statements() -> None:
    plan = table(10, row_filter="(a > 1) OR (b)")
    first, middle, last = plan.ranges(3, least_blocks=1)
    select = 'COPY (SELECT "id", "odd ""x""" FROM ONLY "s"."leaf0"'
    own = " AND ((a > 1) OR (b))) TO STDOUT"
    assert plan.copy_statement(first).as_string(None) == f"{select} WHERE ctid < '(3,0)'{own}"
    assert plan.copy_statement(middle).as_string(None) == f"{select} WHERE ctid >= '(3,0)' AND ctid < '(6,0)'{own}"
    assert plan.copy_statement(last).as_string(None) == f"{select} WHERE ctid >= '(6,0)'{own}"
    whole = table(10)
    assert whole.copy_statement(whole.ranges(1)[0]).as_string(None) == f"{select}) TO STDOUT"


def test_a_range_travels_as_a_row() -> None:
    plan = table(10)
    range_ = SnapshotRange(plan, plan.ranges(1)[0], "name")
    assert list(located_ranges([located(range_), located(range_)])) == [range_, range_]
    assert pickle.loads(pickle.dumps(range_)) == range_


def test_names() -> None:
    assert table_name("t") == ("public", "t")
    assert table_name("s.t") == ("s", "t")
    assert table_name(quoted_name("s.1", 'odd "t".x')) == ("s.1", 'odd "t".x')
    with pytest.raises(UsageError):
        table_name("a.b.c")


NEEDED = {"url": "postgres://user:secret@host/db", "table": "t", "publication": "a, b"}


def test_options() -> None:
    options = SnapshotOptions.from_spark({**NEEDED, "numpartitions": "7", "snapshotname": "x"})
    assert (options.num_partitions, options.snapshot_name, options.publications) == (7, "x", ("a", "b"))
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("shape", "round", "one of: typed, rows, located"),
        ("format", "debezium", "one of: msgpack, json"),
        ("method", "watermark", "one of: export, filter"),
        ("batchRows", "0", "let batchRows be 1 at least"),
        ("numPartition", "2", "did you mean numPartitions?"),
    ],
)
def test_options_that_are_wrong(name: str, value: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        SnapshotOptions.from_spark({**NEEDED, name: value})
    assert caught.value.remedy == remedy


def test_who_blocks_is_named() -> None:
    seen = RunningTransaction("7", "db", 12, None, 3.25, 1.5, "active")
    unseen = RunningTransaction("8", "db", 13, None, None, None, None)
    prepared = RunningTransaction("9", "db", None, "gid", None, None, None)
    error = blocked([seen, unseen, prepared], 60)
    assert error.message == (
        "no consistent point within 60 s, because transactions stay open: pid 12 (active), open for 3.2 s, last query "
        "began 1.5 s ago; pid 13; prepared transaction 'gid'"
    )
    assert error.remedy == "commit or end them: SELECT pg_terminate_backend(12); or allow more time"
    assert blocked([prepared] * 7, 1).message.endswith("; and 2 more")
