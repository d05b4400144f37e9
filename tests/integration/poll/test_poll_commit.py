"""What a commit takes away, and that a crash at any moment loses nothing."""

from __future__ import annotations

import json
import uuid

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from headgate.destinations.memory import MemoryDestination
from headgate.model import ConfigError, StateError, Status
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.base import DESTRUCTIVE_POLLING, POLLING
from headgate.sources.postgres_poll.source import PostgresPollSource
from tests.integration.poll.conftest import Queue, drain, read


def left(queue: Queue) -> list[int]:
    return [row[0] for row in queue.execute("select id from jobs order by id")]


def fill(queue: Queue, count: int) -> None:
    queue.execute(f"insert into jobs select i, i, 'v' || i from generate_series(1, {count}) i")


def source(queue: Queue, destructive: bool | None = None, **more: str) -> PostgresPollSource:
    return PostgresPollSource("jobs", queue.options(**more), "test-jobs", destructive)


def test_nothing_is_deleted_before_the_commit(queue: Queue) -> None:
    fill(queue, 5)
    reader = queue.reader(deleteAfterRead="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    read(reader, start, end)
    assert left(queue) == [1, 2, 3, 4, 5]
    source(queue, deleteAfterRead="true").commit(end)
    assert left(queue) == [4, 5]
    assert read(reader, start, end) == []  # a covered batch that Spark asks for again has nobody to read it


def test_a_crash_between_state_and_commit(queue: Queue) -> None:
    """The pipeline calls commit again for the covered batch; the keys are still known."""
    fill(queue, 4)
    reader = queue.reader(deleteAfterRead="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    read(reader, start, end)
    survivor = source(queue, deleteAfterRead="true")
    survivor.commit(end)
    survivor.commit(end)
    assert left(queue) == [3, 4]


def test_a_commit_that_never_came_is_made_up_for(queue: Queue) -> None:
    """Spark goes on from the end of a batch: that alone says that it was delivered."""
    fill(queue, 4)
    reader = queue.reader(deleteAfterRead="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    again = queue.reader(deleteAfterRead="true")
    later = again.latestOffset(end, ReadMaxRows(2))
    assert left(queue) == [3, 4]
    assert [row["id"] for row in read(again, end, later)] == [3, 4]


def test_a_crash_between_delete_and_forgetting(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(queue, 3)
    reader = queue.reader(deleteAfterRead="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(2))
    with monkeypatch.context() as patched:
        patched.setattr("headgate.sources.postgres_poll.plans.PlanBook.forget", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            source(queue, deleteAfterRead="true").commit(end)
    assert left(queue) == [3]
    queue.execute("insert into jobs values (1, 50, 'same key, another row')")
    source(queue, deleteAfterRead="true").commit(end)
    assert left(queue) == [1, 3]


def test_a_row_changed_after_the_read_is_not_deleted_unread(queue: Queue) -> None:
    fill(queue, 3)
    reader = queue.reader(deleteAfterRead="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(3))
    read(reader, start, end)
    queue.execute("update jobs set tick = 9, note = 'changed' where id = 2")
    committed = source(queue, deleteAfterRead="true")
    committed.commit(end)
    assert left(queue) == [2]
    assert committed.describe()["rows_changed_before_commit_total"] == 1
    batches, _ = drain(reader, start=end)
    assert [row["note"] for row in batches[0]] == ["changed"]
    assert left(queue) == []


def test_destructive_polling_finds_what_comes_late(queue: Queue) -> None:
    """A transaction that took its value long before it wrote: only the row's being there tells."""
    fill(queue, 3)
    reader = queue.reader(deleteAfterRead="true")
    _, at = drain(reader)
    queue.execute("insert into jobs values (7, -5, 'late')")
    batches, _ = drain(reader, start=at)
    assert [row["note"] for row in batches[0]] == ["late"]


def test_processed_rows_are_marked(queue: Queue) -> None:
    queue.execute("alter table jobs add done boolean")
    fill(queue, 5)
    queue.execute("update jobs set done = true where id = 1")
    batches, _ = drain(queue.reader(processedColumn="done"), limit=2)
    assert [[row["id"] for row in batch] for batch in batches] == [[2, 3], [4, 5]]
    assert queue.execute("select count(*) from jobs where done") == [(5,)]


def test_rows_that_cannot_be_taken_away_are_an_error(queue: Queue) -> None:
    fill(queue, 1)
    queue.execute("create rule keep as on delete to jobs do instead nothing")
    with pytest.raises(StateError, match="still there"):
        drain(queue.reader(deleteAfterRead="true"))


def test_a_reused_directory_never_deletes_what_this_stream_did_not_read(queue: Queue) -> None:
    fill(queue, 4)
    old = queue.reader()
    _, at = drain(old, limit=2)
    old.latestOffset(at, ReadMaxRows(2))
    fresh = queue.reader(deleteAfterRead="true")
    start = fresh.initialOffset()
    end = fresh.latestOffset(start, ReadMaxRows(3))
    assert left(queue) == [1, 2, 3, 4]
    fresh.commit(end)
    assert left(queue) == [4]


def test_mode(queue: Queue) -> None:
    assert source(queue).mode() == POLLING
    assert source(queue, destructive=True).mode() == DESTRUCTIVE_POLLING  # over-declaring is allowed
    assert source(queue, deleteAfterRead="true").mode() == DESTRUCTIVE_POLLING
    with pytest.raises(ConfigError, match="takes rows away"):
        source(queue, destructive=False, processedColumn="done")


@pytest.mark.spark
def test_alone_in_spark(queue: Queue, spark: SparkSession) -> None:
    """A batch that fails comes again, as it was planned."""
    fill(queue, 25)
    options = queue.options(deleteAfterRead="true", maxOffsetsPerTrigger="20")
    frame = spark.readStream.format("pgpoll").options(**options).load()
    assert dict(frame.dtypes) == {
        "id": "bigint",
        "tick": "bigint",
        "note": "string",
        "_position": "string",
        "_schema": "string",
        "_table": "string",
        "_op": "string",
    }
    attempts: list[list[tuple[int, str]]] = []

    def take(batch: DataFrame, _: int) -> None:
        attempts.append([(row["id"], row["_position"]) for row in batch.collect()])
        if len(attempts) == 1:
            raise RuntimeError("crash")

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(queue.directory / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="crash"):
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert len(left(queue)) == 25
    queue.execute("delete from jobs where id = 3; insert into jobs values (0, 0, 'new')")
    writer.trigger(availableNow=True).start().awaitTermination(60)
    first, again, rest = attempts
    assert [key for key, _ in first] == list(range(1, 21))
    assert again == [row for row in first if row[0] != 3]  # the same batch, but for what others deleted
    assert [key for key, _ in rest] == [0, *range(21, 26)]
    assert left(queue) == []  # the last batch included


@pytest.mark.spark
def test_through_a_pipeline(queue: Queue, spark: SparkSession) -> None:
    queue.execute("alter table jobs add done boolean")
    fill(queue, 30)
    memory = MemoryDestination("memory")
    spec = PipelineSpec(
        name=f"p{uuid.uuid4().hex[:8]}",
        source=source(queue, processedColumn="done", maxOffsetsPerTrigger="20", columns="id,note"),
        destinations=(memory,),
        topic="jobs.{id}",
        state_path=queue.directory / "state.json",
        checkpoint=(queue.directory / "checkpoint").as_uri(),
        until_caught_up=True,
    )
    supervisor = Supervisor(spec, spark)
    supervisor.start()
    assert supervisor.join(90)
    assert supervisor.report.status is Status.STOPPED, supervisor.report.error
    rows = [json.loads(message.payload) for message in memory.messages]
    assert rows == [{"id": i, "note": f"v{i}"} for i in range(1, 31)]
    assert len({message.message_id for message in memory.messages}) == 30
    assert queue.execute("select count(*) from jobs where done is not true") == [(0,)]
