"""The bridge from Spark's listener, on a real Spark: everything is told, and nobody asks."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession

from headgate.config.transforms import SqlTransform
from headgate.destinations.memory import MemoryDestination
from headgate.model import Status
from headgate.pipeline.query import PipelineQuery
from headgate.pipeline.spark_reports import SparkReports
from headgate.pipeline.spark_sums import SparkSums
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.sources.random.source import RandomSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

TIMEOUT_S = 120.0


@pytest.fixture
def spec(tmp_path: Path) -> PipelineSpec:
    options = {"rowsPerSecond": "0", "numRows": "250", "maxOffsetsPerTrigger": "100"}
    return PipelineSpec(
        name=f"p{uuid.uuid4().hex[:8]}",
        source=RandomSource("orders", options, "test-orders"),
        destinations=(MemoryDestination("memory", max_rows=1000),),
        topic="t",
        state_path=tmp_path / "state.json",
        checkpoint=(tmp_path / "checkpoint").as_uri(),
        until_caught_up=True,
    )


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when Spark has told that a query is over, which it does after everybody else knows."""
    event, count = threading.Event(), SparkSums.ended

    def counted(self: SparkSums, outcome: str) -> None:
        count(self, outcome)
        event.set()

    monkeypatch.setattr(SparkSums, "ended", counted)
    return event


def test_every_batch_and_the_end_are_told(spec: PipelineSpec, spark: SparkSession, ended: threading.Event) -> None:
    supervisor = Supervisor(spec, spark)
    supervisor.start()
    assert supervisor.join(TIMEOUT_S)
    assert ended.wait(TIMEOUT_S)
    told = supervisor.report.spark
    assert told["input_rows_total"] == 250
    assert told["terminations"] == {"stopped": 1, "failed": 0}
    assert sum(told["parts"]["addBatch"]["counts"]) == 3
    assert told["parts"]["triggerExecution"]["sum"] > told["parts"]["addBatch"]["sum"] > 0
    assert told["processed_rows_per_second"] > 0
    assert [each["numInputRows"] for each in supervisor.progress()] == [100, 100, 50]
    assert [each["batchId"] for each in supervisor.progress()] == [0, 1, 2]


def test_a_query_that_fails_ends_as_failed(spec: PipelineSpec, spark: SparkSession, ended: threading.Event) -> None:
    bad = SqlTransform(type="sql", query="select *, cast(kind as int) as number from batch")
    supervisor = Supervisor(replace(spec, transforms=(bad,)), spark)
    supervisor.start()
    assert supervisor.join(TIMEOUT_S)
    assert supervisor.report.status is Status.ERROR
    assert ended.wait(TIMEOUT_S)
    assert supervisor.report.spark["terminations"] == {"stopped": 0, "failed": 1}


def test_an_idle_pipeline_asks_spark_nothing(
    spec: PipelineSpec, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question would keep both sides awake."""
    asked: list[str] = []
    turns, has_turned = 0, threading.Event()
    send, record = GatewayClient.send_command, PipelineQuery.record_progress

    def sent(self: GatewayClient, command: str, *arguments: Any, **more: Any) -> Any:
        if threading.current_thread().name == f"pipeline-{spec.name}" and counting.is_set():
            asked.append(command)
        return send(self, command, *arguments, **more)

    def turned(self: PipelineQuery) -> None:
        nonlocal turns
        record(self)
        turns += counting.is_set()
        if turns == 1:  # the turn in which its start was over may still have asked
            asked.clear()
        if turns >= 9:
            has_turned.set()

    def told(self: SparkReports, report: dict[str, Any]) -> None:
        tell(self, report)
        if report["batchId"] == 2:
            all_told.set()

    counting, all_told, tell = threading.Event(), threading.Event(), SparkReports.told
    monkeypatch.setattr(SparkReports, "told", told)
    monkeypatch.setattr(GatewayClient, "send_command", sent)
    monkeypatch.setattr(PipelineQuery, "record_progress", turned)
    supervisor = Supervisor(replace(spec, until_caught_up=False), spark)
    supervisor.start()
    try:
        assert all_told.wait(TIMEOUT_S)
        counting.set()
        assert has_turned.wait(TIMEOUT_S)
        assert asked == []
        assert supervisor.report.lag_rows == 0  # which the reports say
    finally:
        counting.clear()
        supervisor.stop()
        assert supervisor.join(TIMEOUT_S)
