"""A trace goes through the gateway: the header `traceparent` reaches consumers and SQL as its producer wrote it."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.gateway.servers import GatewayThread

TIMEOUT_S = 60.0
PROPAGATOR = TraceContextTextMapPropagator()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_context_of_a_producer_reaches_its_consumers(
    gateway: GatewayThread, database: str, spans: InMemorySpanExporter, compression: str
) -> None:
    topic = f"traced-{uuid4().hex[:8]}"
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": gateway.bootstrap}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    tracer, headers = trace.get_tracer("test"), dict[str, str]()
    with tracer.start_as_current_span("publish", kind=trace.SpanKind.PRODUCER) as published:
        PROPAGATOR.inject(headers)
        producer = Producer(servers | {"compression.type": compression})
        producer.produce(topic, b"value", headers=list(headers.items()))
        assert producer.flush(TIMEOUT_S) == 0
    with closing(Consumer(servers | {"group.id": topic})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        found: list[tuple[str, bytes]] = list(message.headers() or ())  # type: ignore[arg-type]
        carried = {name: value.decode() for name, value in found}
    context = PROPAGATOR.extract(carried, Context())
    with tracer.start_as_current_span("process", context, trace.SpanKind.CONSUMER) as processed:
        pass
    assert processed.get_span_context().trace_id == published.get_span_context().trace_id
    with psycopg.connect(database) as connection:
        row = connection.execute("select headers from kafka.messages where topic = %s", [topic]).fetchone()
    assert row is not None
    assert row[0] == [["traceparent", headers["traceparent"]]]
