"""Which rows a poll finds, and that it finds them again."""

from __future__ import annotations

import datetime
import decimal

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, StateError
from headgate.sources.base import Lag
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import Future
from headgate.sources.postgres_poll.poller import Poller
from headgate.sources.postgres_poll.source import PostgresPollSource
from tests.integration.poll.conftest import Queue, Rows, drain, read


def test_ties_across_the_edges_of_batches(queue: Queue) -> None:
    """Many rows of one tracking value, more than a batch holds."""
    queue.execute("insert into jobs select i, i / 40, 'n' || i from generate_series(99, 0, -1) i")
    batches, _ = drain(queue.reader(), limit=7)
    assert [len(batch) for batch in batches] == [7] * 14 + [2]
    rows = [row for batch in batches for row in batch]
    assert [row["id"] for row in rows] == list(range(100))
    positions = [row["_position"] for row in rows]
    assert positions == sorted(set(positions))
    assert {(row["_op"], row["_schema"], row["_table"]) for row in rows} == {("read", queue.schema, "jobs")}


def test_an_update_that_raises_the_tracking_value_comes_again(queue: Queue) -> None:
    queue.execute("insert into jobs select i, i, 'old' from generate_series(1, 5) i")
    reader = queue.reader()
    _, at = drain(reader)
    queue.execute("update jobs set tick = 6, note = 'new' where id = 2")
    (rows,), _ = drain(reader, start=at)
    assert [(row["id"], row["note"]) for row in rows] == [(2, "new")]


def test_a_late_committer_is_not_skipped(queue: Queue) -> None:
    reader = queue.reader()
    with queue.connect() as late, queue.connect() as early:
        late.execute("insert into jobs values (1, 1, 'late')")
        early.execute("insert into jobs values (2, 2, 'early')")
        early.commit()
        batches, at = drain(reader)
        assert batches == []  # row 2 is visible, but whoever wrote before it is not done
        late.commit()
    batches, _ = drain(reader, start=at)
    assert [row["note"] for row in batches[0]] == ["late", "early"]


def notes(batches: list[Rows]) -> list[str]:
    return [row["note"] for batch in batches for row in batch]


def test_a_tie_with_a_lower_key_comes_after_the_others_were_read(queue: Queue) -> None:
    queue.execute("insert into jobs values (5, 1, 'a'), (9, 1, 'b')")
    reader = queue.reader(overlapValues="0")
    batches, at = drain(reader)
    queue.execute("insert into jobs values (1, 1, 'tie')")
    more, at = drain(reader, start=at)
    assert (notes(batches), notes(more)) == (["a", "b"], ["tie"])
    assert drain(queue.reader(overlapValues="0"), start=at)[0] == []


@pytest.mark.parametrize("type_", ["timestamptz", "timestamp(3)", "bigint", "smallint"])
def test_late_rows_of_every_sort_come_once(queue: Queue, type_: str) -> None:
    """Values that are taken early and written late, more of them than a batch holds, in transactions out of order."""
    value = "%s" if type_.endswith("int") else f"(now() - interval '5 minutes' + interval '1 s' * %s)::{type_}"
    queue.execute(f"alter table jobs drop tick; alter table jobs add tick {type_}")
    insert = f"insert into jobs (id, note, tick) values (%s, %s, {value})"
    queue.execute(insert, 100, "a", 100)
    reader = queue.reader()
    batches, at = drain(reader)
    assert notes(batches) == ["a"]
    with queue.connect() as begun, queue.connect() as nested, queue.connect() as other:
        begun.execute("select 1")  # it runs, and has no number yet
        nested.execute(insert.encode(), (1, "nested 1", 1))
        nested.execute("savepoint s")
        nested.execute(insert.encode(), (2, "nested 2", 2))
        for n in range(3, 20):
            other.execute(insert.encode(), (n, f"other {n}", n))
        other.commit()
        begun.execute(insert.encode(), (20, "begun", 20))
        begun.commit()
        queue.execute(insert, 101, "b", 101)
        batches, at = drain(reader, start=at)
        assert notes(batches) == []  # a transaction that runs holds up everything that was written after it
        nested.commit()
    late = ["nested 1", "nested 2", *(f"other {n}" for n in range(3, 20)), "begun"]
    batches, at = drain(reader, limit=6, start=at)
    assert notes(batches) == [*late, "b"]
    assert [len(batch) for batch in batches] == [6, 6, 6, 2, 1]
    positions = [row["_position"] for batch in batches for row in batch]
    assert positions == sorted(set(positions))
    queue.execute("update jobs set note = 'again' where id = 7")
    batches, at = drain(queue.reader(), limit=6, start=at)
    assert notes(batches) == ["again"]  # with a new transaction it counts as new
    assert drain(reader, start=at)[0] == []


def test_late_rows_during_late_rows(queue: Queue) -> None:
    queue.execute("insert into jobs values (100, 100, 'last')")
    reader = queue.reader()
    _, at = drain(reader)
    queue.execute("insert into jobs select i, i, 'late ' || i from generate_series(10, 15) i")
    first = reader.latestOffset(at, ReadMaxRows(4))
    got = notes([read(reader, at, first)])
    queue.execute("insert into jobs values (1, 1, 'later'), (101, 101, 'new')")
    batches, at = drain(queue.reader(), limit=4, start=first)
    assert got + notes(batches) == [*(f"late {n}" for n in range(10, 16)), "later", "new"]


def test_a_run_that_ends_takes_what_was_settled_when_it_began(queue: Queue) -> None:
    queue.execute("insert into jobs values (100, 100, 'last')")
    _, at = drain(queue.reader())
    queue.execute("insert into jobs values (1, 1, 'late')")
    ending = queue.reader()
    ending.prepareForTriggerAvailableNow()
    queue.execute("insert into jobs values (2, 2, 'later'), (200, 200, 'new')")
    batches, at = drain(ending, start=at)
    assert notes(batches) == ["late"]
    assert notes(drain(queue.reader(), start=at)[0]) == ["later", "new"]


def test_what_lies_further_back_than_the_overlap_is_not_looked_for(queue: Queue) -> None:
    queue.execute("insert into jobs values (100, 100, 'last')")
    reader = queue.reader(overlapValues="10")
    _, at = drain(reader)
    queue.execute("insert into jobs values (1, 89, 'far'), (2, 90, 'near')")
    assert notes(drain(reader, start=at)[0]) == ["near"]


@pytest.mark.parametrize("type_", ["timestamptz", "timestamp", "date"])
def test_a_row_dated_in_the_future_hides_no_other(queue: Queue, type_: str) -> None:
    queue.execute(f"alter table jobs drop tick; alter table jobs add tick {type_} default now() - interval '1 day'")
    queue.execute("insert into jobs (id, note, tick) values (1, 'typo', '2999-01-01'), (2, 'a', default)")
    waiting = queue.reader()
    batches, at = drain(waiting)
    assert notes(batches) == ["a"]
    told = Poller(PollOptions.from_spark(queue.options())).book.future()
    assert (told.rows, told.last[:4], told.cursor_is_ahead) == (1, "2999", False)
    eager = queue.reader(futureRows="read", directory=str(queue.directory / "eager"))
    batches, ahead = drain(eager)
    assert notes(batches) == ["a", "typo"]
    queue.execute("insert into jobs (id, note, tick) values (3, 'b', now())")
    assert notes(drain(waiting, start=at)[0]) == ["b"]
    batches, ahead = drain(eager, start=ahead)
    assert notes(batches) == ["b"]
    beside = Poller(PollOptions.from_spark(queue.options(directory=str(queue.directory / "eager"))))
    assert beside.book.future() == Future(1, told.last, cursor_is_ahead=True)
    queue.execute("delete from jobs where id = 1")
    drain(waiting, start=at)
    assert Poller(PollOptions.from_spark(queue.options())).book.future() == Future()


def test_a_checkpoint_of_before_late_rows_goes_on(queue: Queue) -> None:
    queue.execute("insert into jobs values (1, 1, 'a'), (2, 2, 'b')")
    reader = queue.reader()
    start = reader.initialOffset()
    _, at = drain(reader)
    old = {"row": at["row"], "after": at["after"]}
    queue.execute("insert into jobs values (3, 3, 'c')")
    batches, at = drain(reader, start=old)
    assert (notes(batches), sorted(start), "seen" in at) == (["c"], ["after", "row"], True)


def test_rows_before_an_unsettled_one_are_read(queue: Queue) -> None:
    queue.execute("insert into jobs values (1, 1, 'a'), (3, 3, 'c')")
    reader = queue.reader()
    with queue.connect() as running, queue.connect() as other:
        running.execute("insert into jobs values (9, 9, 'z')")
        other.execute("insert into jobs values (2, 2, 'b')")
        other.commit()
        batches, at = drain(reader)
        assert [row["note"] for batch in batches for row in batch] == ["a"]
        running.rollback()
    batches, _ = drain(reader, start=at)
    assert [row["note"] for batch in batches for row in batch] == ["b", "c"]


def test_a_replay_after_foreign_changes(queue: Queue) -> None:
    queue.execute("insert into jobs select i, i, 'v' || i from generate_series(1, 6) i")
    reader = queue.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    before = read(reader, start, end)
    queue.execute("delete from jobs where id = 3; update jobs set tick = 100 where id = 2")
    queue.execute("insert into jobs values (0, 0, 'new')")
    again = queue.reader(minPartitions="3")  # another process, after a crash
    assert again.initialOffset() == start
    assert again.latestOffset(start, ReadMaxRows(1)) == end
    after = read(again, start, end)
    assert [row["id"] for row in before] == [1, 2, 3, 4, 5]
    assert [row["id"] for row in after] == [1, 2, 4, 5]
    places = {row["id"]: row["_position"] for row in before}
    assert all(places[row["id"]] == row["_position"] for row in after)


def test_a_batch_in_several_parts(queue: Queue) -> None:
    queue.execute("insert into jobs select i, i, null from generate_series(1, 10) i")
    reader = queue.reader(minPartitions="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(reader.partitions(start, end)) == 4
    assert [row["id"] for row in read(reader, start, end)] == list(range(1, 11))
    assert reader.partitions(end, end) == []


def test_types_and_odd_keys(queue: Queue) -> None:
    queue.execute("create type mood as enum ('glad', 'sad')")
    queue.execute(
        """create table odd ("Key %% one" text, "k,2" mood, at timestamptz, price numeric(8,2), raw bytea, tags text[],
           "select" double precision, doc jsonb, primary key ("Key %% one", "k,2"))""".replace("%%", "%")
    )
    keys = ['a"b', "new\nline", "comma,'quote'", "\\back{}", "", "NULL", "schön"]
    for key in keys:
        queue.execute(
            """insert into odd values (%s, 'sad', '2025-01-02 03:04:05.678901+02', 1.50, '\\x00ff', '{a,null}',
               'NaN', '{"a": 1}')""",
            key,
        )
    reader = queue.reader(table=f"{queue.schema}.odd", trackingColumn="at", deleteAfterRead="true")
    batches, _ = drain(reader, limit=2)
    rows = [row for batch in batches for row in batch]
    assert sorted(row["Key % one"] for row in rows) == sorted(keys)
    row = rows[0]
    moment = datetime.datetime(2025, 1, 2, 1, 4, 5, 678901, tzinfo=datetime.UTC)
    assert (row["k,2"], row["at"], row["price"], row["raw"]) == ("sad", moment, decimal.Decimal("1.50"), b"\x00\xff")
    assert (row["tags"], row["select"] != row["select"], row["doc"]) == (["a", None], True, '{"a": 1}')
    assert queue.execute("select count(*) from odd") == [(0,)]


def test_columns_filter_and_nulls(queue: Queue) -> None:
    queue.execute("insert into jobs values (1, 1, 'yes'), (2, null, 'yes'), (3, 3, 'no'), (4, 4, '100%')")
    reader = queue.reader(columns="note", filter="note <> 'no' or note like '5%'")
    batches, _ = drain(reader)
    assert [row["note"] for row in batches[0]] == ["yes", "100%"]
    assert "id" not in batches[0][0]


def test_a_unique_index_instead_of_a_primary_key(queue: Queue) -> None:
    queue.execute("create table bare (a int not null, b int not null, tick int)")
    options = {"table": f"{queue.schema}.bare", "keyColumns": "a, b"}
    with pytest.raises(ConfigError, match="do not identify a row"):
        queue.reader(**options)
    queue.execute("create unique index on bare (a, b) where a > 0")
    with pytest.raises(ConfigError, match="do not identify a row"):
        queue.reader(**options)
    queue.execute("create unique index on bare (b)")
    queue.execute("insert into bare values (1, 2, 1), (1, 1, 1)")
    assert [row["b"] for row in drain(queue.reader(**options))[0][0]] == [1, 2]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"table": "nowhere.nothing"}, ConfigError, "no table nowhere.nothing"),
        ({"trackingColumn": "tock"}, ConfigError, "tracking_column names tock"),
        ({"columns": "id,x"}, ConfigError, "columns names x"),
        ({"processedColumn": "note"}, ConfigError, "of type text"),
        ({"filter": "nope = 1"}, ConfigError, "nope"),
        ({"filter": "1 / 0 = note::int"}, ConfigError, "division by zero|invalid input"),
        ({"url": "postgres://127.0.0.1:1/x"}, ConnectError, "running"),
    ],
)
def test_mistakes_are_clear(queue: Queue, options: dict[str, str], kind: type[HeadgateError], message: str) -> None:
    queue.execute("insert into jobs values (1, 1, 'x')")
    with pytest.raises(kind, match=message) as caught:
        drain(queue.reader(**options))
    assert caught.value.remedy


def test_a_role_that_may_only_read(queue: Queue) -> None:
    queue.execute("insert into jobs values (1, 1, 'x')")
    role = f"reader_{queue.schema}"[-60:]
    queue.execute(f'create role "{role}" login; grant usage on schema "{queue.schema}" to "{role}"')
    queue.more["url"] = queue.url.replace("user=headgate", f"user={role}")
    try:
        with pytest.raises(AuthError, match="permission denied"):
            drain(queue.reader())
        queue.execute(f'grant select on jobs to "{role}"')
        assert len(drain(queue.reader())[0]) == 1
        with pytest.raises(AuthError) as caught:
            drain(queue.reader(deleteAfterRead="true", directory=str(queue.directory / "other")))
        assert "GRANT" in caught.value.remedy
        queue.execute(f'grant delete on jobs to "{role}"')
        drain(queue.reader(deleteAfterRead="true", directory=str(queue.directory / "third")))
        assert queue.execute("select count(*) from jobs") == [(0,)]
    finally:
        queue.execute(f'drop owned by "{role}"; drop role "{role}"')


def test_a_lost_plan_is_an_error(queue: Queue) -> None:
    queue.execute("insert into jobs values (1, 1, 'x')")
    reader = queue.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(5))
    (path,) = (queue.directory / "book").glob("*.plan")
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StateError, match="cannot be read"):
        reader.partitions(start, end)
    path.unlink()
    with pytest.raises(StateError, match="is missing"):
        reader.partitions(start, end)


def test_an_idle_table_is_asked_once_in_a_while(queue: Queue) -> None:
    reader = queue.reader(pollIntervalMs="3600000")
    at = reader.initialOffset()
    assert reader.latestOffset(at, ReadMaxRows(5)) == at
    queue.execute("insert into jobs values (1, 1, 'x')")
    assert reader.latestOffset(at, ReadMaxRows(5)) == at


def test_a_partitioned_table(queue: Queue) -> None:
    queue.execute(
        "create table parts (id int, tick xid8 default pg_current_xact_id(), primary key (id)) partition by range (id)"
    )
    queue.execute("create table low partition of parts for values from (0) to (10)")
    queue.execute("create table high partition of parts for values from (10) to (20)")
    queue.execute("insert into parts select generate_series(18, 1, -3)")
    reader = queue.reader(table=f"{queue.schema}.parts", deleteAfterRead="true")
    batches, _ = drain(reader, limit=4)
    assert [[row["id"] for row in batch] for batch in batches] == [[3, 6, 9, 12], [15, 18]]
    assert queue.execute("select count(*) from parts") == [(0,)]
    queue.execute("insert into parts values (1), (11)")
    settled = queue.reader(table=f"{queue.schema}.parts", directory=str(queue.directory / "plain"))
    assert [row["id"] for row in drain(settled)[0][0]] == [1, 11]


def test_how_many_rows_wait_and_for_how_long(queue: Queue) -> None:
    queue.execute("alter table jobs add at timestamptz")
    queue.execute("insert into jobs select i, i, '', now() - interval '1 hour' from generate_series(1, 5) i")
    for tracking, seconds in (("tick", None), ("at", 3600)):
        options = queue.options(trackingColumn=tracking, directory=str(queue.directory / tracking))
        source = PostgresPollSource("s", options, "o")
        waiting = source.lag(None)
        assert waiting.rows == 5
        assert (waiting.seconds is None) if seconds is None else (waiting.seconds or 0) >= seconds
        _, end = drain(queue.reader(trackingColumn=tracking, directory=str(queue.directory / tracking)))
        assert source.lag(end) == Lag(rows=0)
        assert source.reached(end)["key"] == ["5"]
    queue.execute("insert into jobs select i, i, '', now() + interval '1 hour' from generate_series(6, 7) i")
    assert source.lag(end).rows == 0, "rows of the future wait for their time, not for us"
