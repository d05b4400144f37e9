"""Files through Spark: its parsers, its own Parquet source, and a whole pipeline."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, Row, SparkSession

from headgate.destinations.memory import MemoryDestination
from headgate.model import Kind, Status
from headgate.pipeline.failures import from_spark
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.files.source import FileRows, FilesSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

Drain = Callable[[DataFrame], list[Row]]


@pytest.fixture
def drain(tmp_path: Path) -> Drain:
    def run(frame: DataFrame) -> list[Row]:
        found: list[Row] = []
        writer = frame.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = writer.start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return found

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def source(folder: Path, rows: FileRows, **more: str) -> FilesSource:
    options = {"path": str(folder), "directory": str(folder.parent / "index"), **more}
    return FilesSource("files", rows, options, "test-files")


HOSTILE = [
    '{"id": 1, "name": "one"}',
    "",
    '{"id": 2, "name": ',
    "[]",
    '{"id": "x"}',
    "\x00\ufeff",
    '{"id": 3, "name": "it\'s \\u00fc"}',
    "{" * 2000,
]


def test_alone_and_again_after_a_restart(spark: SparkSession, folder: Path, drain: Drain) -> None:
    (folder / "a.log").write_text("one\ntwo\npart")
    reader = spark.readStream.format("filelines").option("path", str(folder))
    frame = reader.option("directory", str(folder.parent / "index")).load()
    assert frame.columns == ["value", "_position", "_file", "_offset", "_op"]
    assert [row["value"] for row in drain(frame)] == ["one", "two"]
    with (folder / "a.log").open("a") as file:
        file.write("ial\n")
    assert [(row["value"], row["_offset"]) for row in drain(frame)] == [("partial", 8)]


def test_json_lines_keep_what_does_not_parse(spark: SparkSession, folder: Path, drain: Drain) -> None:
    (folder / "a.jsonl").write_text("\n".join(HOSTILE) + "\n")
    rows = drain(source(folder, FileRows("jsonl", "id bigint, name string")).load(spark.readStream))
    assert [(row["id"], row["name"]) for row in rows if row["_corrupt_record"] is None] == [(1, "one"), (3, "it's ü")]
    assert [row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None] == [
        HOSTILE[i] for i in (2, 3, 4, 5, 7)
    ]


def test_the_modes_for_lines_that_do_not_parse(spark: SparkSession, folder: Path, drain: Drain) -> None:
    (folder / "a.csv").write_text('1,"a ""b"", c"\nx,y\n2,z\n3\n')
    strict = source(
        folder, FileRows("csv", "id int, name string", mode="FAILFAST"), directory=str(folder.parent / "i2")
    )
    with pytest.raises(Exception, match="does not parse") as caught:
        drain(strict.load(spark.readStream))
    error = from_spark(caught.value)
    assert error.kind is Kind.DATA
    assert "the line at byte 15 of" in error.message
    (folder.parent / "checkpoint").rename(folder.parent / "old")
    lenient = source(folder, FileRows("csv", "id int, name string", mode="DROPMALFORMED"))
    rows = drain(lenient.load(spark.readStream))
    assert [(row["id"], row["name"]) for row in rows] == [(1, 'a "b", c'), (2, "z")]


def test_csv_with_a_header_needs_no_schema(spark: SparkSession, folder: Path, drain: Drain) -> None:
    (folder / "a.csv").write_text("id,when\n1,2025-01-02\n")
    (folder / "b.csv").write_text("id,when\n2,2025-01-03\n")
    frame = source(folder, FileRows("csv", header=True)).load(spark.readStream)
    assert dict(frame.dtypes)["id"] == "int"
    assert [(row["id"], str(row["when"])) for row in drain(frame)] == [(1, "2025-01-02"), (2, "2025-01-03")]


def test_parquet(spark: SparkSession, folder: Path, drain: Drain) -> None:
    def write(name: str, *ids: int) -> None:
        parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), folder / name)

    write("a.parquet", 1, 2)
    frame = source(folder, FileRows("parquet")).load(spark.readStream)
    first = drain(frame)
    write("b.parquet", 3)
    second = drain(frame)
    assert [row["id"] for row in [*first, *second]] == [1, 2, 3]
    positions = [row["_position"] for row in [*first, *second]]
    assert positions == sorted(set(positions))
    assert [row["_offset"] for row in first] == [0, 1]
    assert first[0]["_file"].endswith("a.parquet")


def pipeline(tmp_path: Path, files: FilesSource, memory: MemoryDestination, **more: Any) -> PipelineSpec:
    return PipelineSpec(
        name=f"p{uuid.uuid4().hex[:8]}",
        source=files,
        destinations=(memory,),
        topic="events.{kind}",
        state_path=tmp_path / "state.json",
        checkpoint=(tmp_path / "checkpoint").as_uri(),
        **more,
    )


def test_a_growing_file_through_a_pipeline(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Lines are written while the pipeline runs, and the file is rotated under it."""
    memory = MemoryDestination("memory")
    log = folder / "app.log"
    files = source(
        log, FileRows("jsonl", "id bigint, kind string"), directory=str(tmp_path / "index"), pollIntervalMs="20"
    )
    supervisor = Supervisor(pipeline(tmp_path, files, memory), spark)
    supervisor.start()
    try:
        for i in range(30):
            with log.open("a") as file:
                file.write(json.dumps({"id": i, "kind": "even" if i % 2 == 0 else "odd"}) + "\n")
            if i % 10 == 9:
                assert memory.wait_for(i - 4, 60), supervisor.report.error
                log.rename(folder / f"app.log.{i}")
        assert memory.wait_for(30, 60), supervisor.report.error
    finally:
        supervisor.stop()
        assert supervisor.join(60)
    assert supervisor.report.status is Status.STOPPED
    assert [json.loads(message.payload)["id"] for message in memory.messages] == list(range(30))
    assert {message.topic for message in memory.messages} == {"events.even", "events.odd"}
    assert len({message.message_id for message in memory.messages}) == 30


def test_what_waits_and_what_the_planner_says_is_seen(
    spark: SparkSession, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lag also while nothing moves; and a warning of the planner, which lives in a process of Spark's."""
    memory = MemoryDestination("memory")
    log = folder / "app.log"
    log.write_text('{"kind": "a"}\n')
    files = source(log, FileRows("jsonl", "kind string"), directory=str(tmp_path / "index"), pollIntervalMs="20")
    supervisor = Supervisor(pipeline(tmp_path, files, memory), spark)
    supervisor.start()
    try:
        assert memory.wait_for(1, 60), supervisor.report.error
        log.write_text('{"kind":1}\n')  # shorter than what was read
        assert memory.wait_for(2, 60), supervisor.report.error
        wait_until(lambda: any("truncated or replaced" in record.getMessage() for record in caplog.records))
        supervisor.pause()
        assert supervisor.reporter.wait_for(Status.PAUSED, timeout_s=60)
        with log.open("a") as file:
            file.write("x" * 99 + "\n")
        wait_until(lambda: supervisor.report.lag_bytes == 100)
        assert supervisor.reached() == {"files": [{"file": str(log), "byte": 11}]}
    finally:
        supervisor.stop()
        assert supervisor.join(60)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
