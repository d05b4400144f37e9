"""What a trace of a batch is made of, and that nothing of a row is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headgate.destinations.memory import MemoryDestination
from headgate.model import DataError
from headgate.pipeline.acks import Moments
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.traces import Delivered, Traces
from headgate.sources.random.source import RandomSource

BATCH = Delivered(
    7, 1000.0, 1003.0, 1004.0, 1005.0, rows=10, payload_bytes=100, duplicates=1, committed_at=990.0,
    moments=Moments(1000.5, 1001.0, 1002.0),
)  # fmt: skip
REPORT = {
    "batchId": 7,
    "timestamp": "1970-01-01T00:16:35.000Z",
    "durationMs": {"latestOffset": 5, "addBatch": 3000, "queryPlanning": 40, "triggerExecution": 9000},
}


@pytest.fixture
def traces(tmp_path: Path, spans: InMemorySpanExporter) -> Traces:
    spec = PipelineSpec(
        name="orders", source=RandomSource("clicks", {}, "o"), destinations=(MemoryDestination("kept", max_rows=1),),
        state_path=tmp_path / "state.json", checkpoint="",
    )  # fmt: skip
    return Traces(spec)


def phases(spans: InMemorySpanExporter) -> dict[str, tuple[float, float]]:
    return {each.name: (_s(each.start_time), _s(each.end_time)) for each in spans.get_finished_spans() if each.parent}


def root(spans: InMemorySpanExporter) -> ReadableSpan:
    (found,) = [each for each in spans.get_finished_spans() if each.parent is None]
    return found


def _s(ns: int | None) -> float:
    assert ns is not None
    return ns / 1e9


def test_one_trace_has_every_phase_of_a_batch(traces: Traces, spans: InMemorySpanExporter) -> None:
    assert traces.is_on
    traces.delivered(BATCH)
    assert spans.get_finished_spans() == ()  # Spark has not told yet how it was planned
    traces.planned(REPORT | {"batchId": 6})
    traces.planned(REPORT)
    traces.planned(REPORT)
    assert phases(spans) == {
        "read": (990, 995), "plan": (995, 1000), "send": (1000.5, 1001), "ack": (1001, 1002),
        "record": (1003, 1004), "commit": (1004, 1005),
    }  # fmt: skip
    whole = root(spans)
    assert (whole.name, _s(whole.start_time), _s(whole.end_time)) == ("deliver orders", 990, 1005)
    assert dict(whole.attributes or {}) == {
        "headgate.pipeline": "orders", "headgate.source": "clicks", "headgate.destinations": ("kept",),
        "headgate.batch": 7, "headgate.rows": 10, "headgate.payload_bytes": 100, "headgate.duplicates": 1,
    }  # fmt: skip
    (plan,) = [each for each in spans.get_finished_spans() if each.name == "plan"]
    assert dict(plan.attributes or {}) == {"headgate.plan.latestOffset_ms": 5, "headgate.plan.queryPlanning_ms": 40}
    assert len({each.context.trace_id for each in spans.get_finished_spans() if each.context}) == 1


def test_a_batch_of_which_spark_tells_nothing_is_traced_all_the_same(
    traces: Traces, spans: InMemorySpanExporter
) -> None:
    traces.delivered(BATCH)
    traces.delivered(BATCH)
    assert list(phases(spans)) == ["read", "send", "ack", "record", "commit"]
    traces.flush()
    traces.flush()
    assert sum(each.parent is None for each in spans.get_finished_spans()) == 2


@pytest.mark.parametrize("report", [{"timestamp": None}, {"timestamp": "soon"}, {"durationMs": None}])
def test_a_report_that_says_little_is_enough(
    traces: Traces, spans: InMemorySpanExporter, report: dict[str, Any]
) -> None:
    traces.delivered(BATCH)
    traces.planned(REPORT | report)
    assert "plan" in phases(spans)


def test_a_clock_that_is_wrong_turns_nothing_around(traces: Traces, spans: InMemorySpanExporter) -> None:
    """Of an executor's machine, and of the database's."""
    moments = Moments(500.0, 2000.0, 2001.0)
    traces.step(Delivered(7, 1000.0, 1003.0, 1004.0, 1005.0, 1, 1, 0, committed_at=5000.0, moments=moments))
    for name, (began, ended) in phases(spans).items():
        assert 1000 <= began <= ended <= 1005, name


def test_of_an_error_only_the_kind_is_told(traces: Traces, spans: InMemorySpanExporter) -> None:
    traces.failed(3, 10.0, 11.0, DataError("a-row-value is no number", where="a-row-value"))
    failed = root(spans)
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "data"
    assert "a-row-value" not in failed.to_json()
