"""A trace follows rows from their commit in PostgreSQL to JetStream, with and without batches of their own."""

from __future__ import annotations

import time

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.integration.routing.test_realtime import insert, nats, wait_until
from tests.integration.routing.test_routed_cdc import Admin, Start, admin, name, start, wait_for_slot  # noqa: F401

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def trace_of(spans: InMemorySpanExporter, rows: int, within: tuple[float, float]) -> list[ReadableSpan]:
    """The spans of the trace with so many rows that ended in a time; none if there is none yet."""
    finished = spans.get_finished_spans()
    for each in finished:
        has_rows = (each.attributes or {}).get("headgate.rows") == rows
        if each.parent is None and has_rows and within[0] <= (each.end_time or 0) / 1e9 <= within[1]:
            assert each.context is not None
            return [one for one in finished if one.context and one.context.trace_id == each.context.trace_id]
    return []


def check(found: list[ReadableSpan], committed_after: float, phases: set[str]) -> None:
    by_name = {each.name: each for each in found}
    assert set(by_name) == phases | {"deliver p"}
    whole = by_name.pop("deliver p")
    assert (whole.attributes or {})["headgate.destinations"] == ("out",)
    assert whole.start_time is not None
    assert whole.end_time is not None
    assert committed_after - 1 <= whole.start_time / 1e9 <= time.time()
    for each in by_name.values():
        assert each.start_time is not None
        assert each.end_time is not None
        assert whole.start_time <= each.start_time <= each.end_time <= whole.end_time, each.name
    assert by_name["read"].start_time == whole.start_time  # the commit in the WAL


@pytest.mark.parametrize("routed", [False, True], ids=["plain", "routed"])
def test_a_step_of_a_batch_that_follows_is_one_trace(
    start: Start,  # noqa: F811
    admin: Admin,  # noqa: F811
    name: str,  # noqa: F811
    spans: InMemorySpanExporter,
    routed: bool,
) -> None:
    routing = {"routing": {"topic_column": "kind", "default_topic": f"{name}.other"}} if routed else {}
    supervisor = start(destination=nats(name), **routing)
    wait_for_slot(admin, name)
    for number in (1, 2):
        insert(admin, number, kind=f"{name}.a")
        assert supervisor.reporter.wait_for_rows(number, timeout_s=90)
    spans.clear()
    before = time.time()
    with admin.transaction():
        insert(admin, 10, 11, 12, kind=f"{name}.a")
    wait_until(lambda: bool(trace_of(spans, 3, (before, time.time() + 1))))
    found = trace_of(spans, 3, (before, time.time() + 1))
    check(found, before, {"read", "send", "ack", "record", "commit"})


def test_a_batch_is_one_trace(start: Start, admin: Admin, name: str, spans: InMemorySpanExporter) -> None:  # noqa: F811
    supervisor = start(destination=nats(name), trigger="batch")
    wait_for_slot(admin, name)
    insert(admin, 1)
    assert supervisor.reporter.wait_for_rows(1, timeout_s=90)
    spans.clear()
    before = time.time()
    with admin.transaction():
        insert(admin, 10, 11, 12)
    wait_until(lambda: bool(trace_of(spans, 3, (before, time.time() + 1))))
    found = trace_of(spans, 3, (before, time.time() + 1))
    check(found, before, {"read", "plan", "send", "ack", "record", "commit"})
