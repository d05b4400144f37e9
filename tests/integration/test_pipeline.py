"""A pipeline on a real Spark: transforms, delivery, failures, and what a restart does."""

from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.config.transforms import (
    DropTransform,
    FilterTransform,
    RenameTransform,
    SelectTransform,
    SqlTransform,
    TransformSection,
)
from headgate.destinations.base import LocalDestination
from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import NatsDestination, NatsOptions
from headgate.embedded import Endpoints
from headgate.model import CapacityError, Kind, Status
from headgate.pipeline.query import PipelineQuery
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.source import RandomSource
from tests.streams import read_stream

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def memory() -> MemoryDestination:
    return MemoryDestination("memory", max_rows=100_000)


@pytest.fixture
def spec(tmp_path: Path, memory: MemoryDestination) -> PipelineSpec:
    options = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100"}
    return PipelineSpec(
        name=f"p{uuid.uuid4().hex[:8]}",
        source=RandomSource("orders", options, "test-orders"),
        destinations=(memory,),
        topic="t.{kind}",
        state_path=tmp_path / "state.json",
        checkpoint=(tmp_path / "checkpoint").as_uri(),
        until_caught_up=True,
    )


@pytest.fixture
def run(spark: SparkSession) -> Iterator[Callable[[PipelineSpec], Supervisor]]:
    started: list[Supervisor] = []

    def start(spec: PipelineSpec) -> Supervisor:
        supervisor = Supervisor(spec, spark)
        started.append(supervisor)
        supervisor.start()
        return supervisor

    yield start
    for supervisor in started:
        supervisor.stop()
        assert supervisor.join(60)


Run = Callable[[PipelineSpec], Supervisor]


def payloads(memory: MemoryDestination) -> list[dict[str, object]]:
    return [json.loads(message.payload) for message in memory.messages]


def test_rows_arrive_in_order_with_topic_and_id(spec: PipelineSpec, memory: MemoryDestination, run: Run) -> None:
    supervisor = run(spec)
    assert supervisor.join(90)
    assert supervisor.report.status is Status.STOPPED
    rows = payloads(memory)
    assert [row["id"] for row in rows] == list(range(250))
    assert {message.topic for message in memory.messages} == {"t.order", "t.payment", "t.shipment", "t.return"}
    assert memory.messages[3].message_id == "test-orders-0000000000000003-00000000"
    assert supervisor.report.rows_total == 250
    assert supervisor.report.batches_total == 3  # 100, 100 and 50: the read limit holds


def test_transforms_apply_in_order(spec: PipelineSpec, memory: MemoryDestination, run: Run) -> None:
    transforms: tuple[TransformSection, ...] = (
        FilterTransform(type="filter", where="id % 2 = 0"),
        RenameTransform(type="rename", columns={"note": "comment"}),
        SqlTransform(type="sql", query="select *, upper(kind) as label from batch where id < 20"),
        SelectTransform(type="select", columns=("id", "label", "kind", "length(comment) as size")),
        DropTransform(type="drop", columns=("label",)),
    )
    assert run(dataclasses.replace(spec, transforms=transforms)).join(90)
    rows = payloads(memory)
    assert [row["id"] for row in rows] == list(range(0, 20, 2))
    assert set(rows[0]) == {"id", "kind", "size"}
    assert rows[0]["size"] == 64


def test_raw_payload(spec: PipelineSpec, memory: MemoryDestination, run: Run) -> None:
    assert run(dataclasses.replace(spec, payload_format="raw", payload_column="note")).join(90)
    assert {len(message.payload) for message in memory.messages} == {64}


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (FilterTransform(type="filter", where="amunt > 1"), "amunt"),
        (SqlTransform(type="sql", query="selec 1"), "Syntax error"),
        (SqlTransform(type="sql", query="select id from batch"), "_position is gone"),
        (SqlTransform(type="sql", query="select kind, count(*) from batch group by kind"), "_position is gone"),
        (DropTransform(type="drop", columns=("nope",)), "no column nope"),
        (RenameTransform(type="rename", columns={"nope": "x"}), "no column nope"),
    ],
)
def test_a_mistake_in_a_transform_is_one_clear_error(
    spec: PipelineSpec, run: Run, transform: TransformSection, message: str
) -> None:
    supervisor = run(dataclasses.replace(spec, transforms=(transform,)))
    assert supervisor.join(60)
    report = supervisor.report
    assert report.status is Status.ERROR
    assert report.error is not None
    assert report.error["kind"] == Kind.CONFIG
    assert message in report.error["message"]
    assert "transforms[0]" in report.error["where"]
    assert "\tat " not in report.error["message"]


def test_a_topic_from_a_missing_column(spec: PipelineSpec, run: Run) -> None:
    supervisor = run(dataclasses.replace(spec, topic="t.{nope}"))
    assert supervisor.join(60)
    assert supervisor.report.error is not None
    assert supervisor.report.error["where"] == f"{spec.where}.topic"


def test_a_value_that_an_expression_cannot_take_needs_somebody(spec: PipelineSpec, run: Run) -> None:
    bad = SqlTransform(type="sql", query="select *, cast(kind as int) as number from batch")
    supervisor = run(dataclasses.replace(spec, transforms=(bad,)))
    assert supervisor.join(60)
    assert supervisor.report.status is Status.ERROR
    assert supervisor.report.error is not None
    assert supervisor.report.error["kind"] == Kind.DATA


def test_a_row_without_topic_is_refused_by_name(spec: PipelineSpec, run: Run) -> None:
    empty = SqlTransform(type="sql", query="select *, cast(null as string) as place from batch")
    supervisor = run(dataclasses.replace(spec, transforms=(empty,), topic="t.{place}"))
    assert supervisor.join(60)
    assert supervisor.report.error is not None
    assert supervisor.report.error["message"] == "a row has no topic"
    assert "test-orders-0000000000000000" in supervisor.report.error["where"]


def test_a_bad_source_option_is_one_clear_error(spec: PipelineSpec, run: Run) -> None:
    source = RandomSource("orders", {"rowsPerSecnd": "1"}, "test-orders")
    supervisor = run(dataclasses.replace(spec, source=source))
    assert supervisor.join(60)
    assert supervisor.report.error is not None
    assert supervisor.report.error["remedy"] == "did you mean rowsPerSecond?"


def test_a_finished_batch_is_not_repeated(spec: PipelineSpec, memory: MemoryDestination, run: Run) -> None:
    assert run(spec).join(90)
    assert run(spec).join(90)
    assert len(memory.messages) == 250


class Flaky(LocalDestination):
    """Fails for a while, then takes everything."""

    def __init__(self, failures: int) -> None:
        self.name = "flaky"
        self.failures = failures
        self.rows = 0

    def accept(self, rows: pa.Table) -> None:
        if self.failures:
            self.failures -= 1
            raise CapacityError("full", remedy="wait")
        self.rows += rows.num_rows


def test_a_failing_destination_is_tried_again(spec: PipelineSpec, run: Run) -> None:
    flaky = Flaky(failures=2)
    supervisor = run(dataclasses.replace(spec, destinations=(flaky,), failure_threshold=2))
    assert supervisor.join(90)
    report = supervisor.report
    assert (flaky.rows, report.rows_total, report.restarts_total, report.errors_total) == (250, 250, 0, 2)
    states = [change.status for change in report.history]
    assert states == [Status.RUNNING, Status.DEGRADED, Status.RUNNING, Status.STOPPED]
    assert report.status is Status.STOPPED


def test_state_that_belongs_to_another_source(spec: PipelineSpec, run: Run) -> None:
    assert run(spec).join(90)
    other = dataclasses.replace(spec, source=RandomSource("orders", spec.source.options(), "other-orders"))
    supervisor = run(other)
    assert supervisor.join(60)
    assert supervisor.report.error is not None
    assert supervisor.report.error["kind"] == Kind.STATE
    assert "headgate reset" in supervisor.report.error["remedy"]


@pytest.mark.parametrize("missing", ["state", "checkpoint"])
def test_state_and_checkpoint_go_together(spec: PipelineSpec, run: Run, tmp_path: Path, missing: str) -> None:
    assert run(spec).join(90)
    (tmp_path / ("state.json" if missing == "state" else "checkpoint")).rename(tmp_path / "elsewhere")
    supervisor = run(spec)
    assert supervisor.join(60)
    assert supervisor.report.status is Status.ERROR
    assert supervisor.report.error is not None
    assert missing in supervisor.report.error["message"]
    assert spec.checkpoint in supervisor.report.error["message"]


def test_a_checkpoint_from_another_pipeline(spec: PipelineSpec, run: Run, tmp_path: Path) -> None:
    assert run(spec).join(90)
    other = dataclasses.replace(spec, checkpoint=(tmp_path / "other").as_uri(), state_path=tmp_path / "other.json")
    assert run(other).join(90)
    supervisor = run(dataclasses.replace(spec, checkpoint=other.checkpoint))
    assert supervisor.join(60)
    assert supervisor.report.error is not None
    assert "belongs to another run or pipeline" in supervisor.report.error["message"]


def test_to_nats_and_memory_at_once(
    spec: PipelineSpec, memory: MemoryDestination, run: Run, endpoints: Endpoints
) -> None:
    name = f"S{uuid.uuid4().hex[:8]}"
    assert endpoints.nats_url is not None
    nats = NatsDestination("nats", NatsOptions(url=endpoints.nats_url, stream=name, subjects=(f"{name}.>",)))
    supervisor = run(dataclasses.replace(spec, destinations=(nats, memory), topic=f"{name}.{{kind}}"))
    assert supervisor.join(90)
    messages = read_stream(endpoints.nats_url, name, 250)
    assert [json.loads(message.data)["id"] for message in messages] == list(range(250))
    assert len(memory.messages) == 250
    assert messages[0].headers == {"Nats-Msg-Id": "test-orders-0000000000000000-00000000"}


def test_an_unreachable_nats_is_retried_and_named(spec: PipelineSpec, run: Run) -> None:
    nats = NatsDestination("nowhere", NatsOptions(url="nats://127.0.0.1:1", stream="X", subjects=("x",)))
    supervisor = run(dataclasses.replace(spec, destinations=(nats,)))
    assert supervisor.reporter.wait_for(Status.DEGRADED, timeout_s=60)
    error = supervisor.report.error
    assert error is not None
    assert error["kind"] == Kind.CONNECT
    assert "127.0.0.1:1" in error["message"] + error["where"]


def test_a_stop_waits_for_no_batch_that_is_about_to_begin(
    spec: PipelineSpec, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's stop waits for the batch, and the batch must not wait for whoever stops."""
    told: list[str] = []
    is_there, is_stopping = threading.Event(), threading.Event()
    deliver, stop = PipelineQuery._deliver, StreamingQuery.stop

    def deliver_late(query: PipelineQuery, frame: DataFrame, batch_id: int) -> None:
        is_there.set()
        assert is_stopping.wait(120)
        try:
            deliver(query, frame, batch_id)
        finally:
            told.append("batch")

    def stop_slowly(query: StreamingQuery) -> None:
        is_stopping.set()
        stop(query)
        told.append("query")

    monkeypatch.setattr(PipelineQuery, "_deliver", deliver_late)
    monkeypatch.setattr(StreamingQuery, "stop", stop_slowly)
    supervisor = run(spec)
    assert is_there.wait(120)
    supervisor.stop()
    assert supervisor.join(120)
    assert told == ["batch", "query"]
    assert supervisor.report.status is Status.STOPPED
