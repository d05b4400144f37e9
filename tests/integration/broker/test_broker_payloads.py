"""Payloads of types, and traces that go through the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headgate.broker import BrokerClient, Event, Message, Subscription
from headgate.model import DataError
from tests.integration.broker.clients import ALL, Seen, connect, running, until


class Struct(msgspec.Struct):
    name: str


@dataclass
class Plain:
    name: str


class Model(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize("kind", [Struct, Plain, Model], ids=["msgspec", "dataclass", "pydantic"])
def test_a_handler_gets_what_it_asked_for(database: str, kind: Any) -> None:
    """What does not fit is a dead letter at once: no retry would change it. The rest of the batch goes on."""

    async def story() -> None:
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            seen, raw = Seen(), Seen()
            await client.register_reliable_handler(ALL, seen, name="typed", payload_type=kind, retries_s=[0])
            await client.register_reliable_handler(ALL, raw, name="raw")
            await client.publish(
                Message("t", kind(name="ann")),
                Message("t", {"name": 7}),
                Message("t", 8),
                Message("t", kind(name="bob")),
            )
            assert await seen.wait_for(2) == [kind(name="ann"), kind(name="bob")]
            assert await raw.wait_for(4) == [{"name": "ann"}, {"name": 7}, 8, {"name": "bob"}]
            row = await until(
                db,
                "select min(error), array_agg(payload order by id), max(attempts) from dead_letters"
                " having count(*) = 2",
            )
            assert row[1:] == ([{"name": 7}, 8], 1)
            assert row[0].startswith(f"DataError: the payload does not fit {kind.__name__}: ")
            await until(db, "select 1 from group_status where cursor = last_pos")

    asyncio.run(story())


def consumers(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind is trace.SpanKind.CONSUMER]


def test_a_trace_goes_through_the_broker(database: str, spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("test")

    async def story() -> None:
        inside: list[trace.SpanContext] = []

        async def handle(events: Sequence[Event]) -> None:
            inside.append(trace.get_current_span().get_span_context())
            await seen(events)

        seen = Seen(lambda event: event.payload == 3)
        async with (
            running(BrokerClient(database, group="g", flush_interval_s=0.01)) as client,
            await connect(database) as db,
        ):
            with tracer.start_as_current_span("setting up"):
                # Neither this span nor the first to enqueue is the parent of what comes later.
                await client.register_reliable_handler(Subscription.to_topics("t"), handle, name="h", batch_size=1)
            with tracer.start_as_current_span("publish") as first:
                await client.publish(Message("t", 1, {"own": True}))
            with tracer.start_as_current_span("enqueue") as second:
                await client.enqueue(Message("t", 2, [1]))
                await (await client.enqueue(Message("t", 3)))
            await (await client.enqueue(Message("t", 4)))
            assert sorted(await seen.wait_for(4)) == [1, 2, 3, 4]
            await until(db, "select 1 from group_status where cursor = last_pos")
        metadata = {event.payload: event.metadata for event in seen.events}
        assert metadata[1] == {"own": True, "traceparent": traceparent(first)}
        assert metadata[2] == [1]
        assert metadata[3] == {"traceparent": traceparent(second)}
        assert metadata[4] is None
        parents = [span.parent and span.parent.span_id for span in consumers(spans)]
        assert parents == [first.get_span_context().span_id, None, second.get_span_context().span_id, None]
        assert [id_of(span) for span in consumers(spans)] == [context.span_id for context in inside]
        assert [span.status.is_ok for span in consumers(spans)] == [True, True, False, True]
        assert consumers(spans)[0].name == "process h"
        assert (consumers(spans)[0].attributes or {})["messaging.destination.name"] == "t"

    asyncio.run(story())


def test_a_batch_is_linked_to_its_traces(database: str, spans: InMemorySpanExporter) -> None:
    tracer = trace.get_tracer("test")

    async def story() -> None:
        seen = Seen()
        async with BrokerClient(database, group="g") as client, await connect(database) as db:
            await client.register_reliable_handler(ALL, seen, name="h")
            for number in range(2):
                with tracer.start_as_current_span("publish"):
                    await client.publish(Message("t", number))
            await client.publish(Message("u", 2, {"traceparent": "nonsense"}))
            await db.execute("select poll_for_events()")
            task = asyncio.create_task(client.run())
            await seen.wait_for(3)
            client.stop()
            await task
        (span,) = consumers(spans)
        published = [one for one in spans.get_finished_spans() if one.name == "publish"]
        assert span.parent is None
        assert [link.context.span_id for link in span.links] == [id_of(one) for one in published]
        assert "messaging.destination.name" not in (span.attributes or {})

    asyncio.run(story())


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def traceparent(span: trace.Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_json_that_python_cannot_read_stops_nobody(database: str) -> None:
    """Too deep, or a number of too many digits, as payload or metadata: a dead letter, or the listener's error."""
    odd = ["""repeat('[', 3000) || repeat(']', 3000)""", "repeat('9', 5000)"]

    async def story() -> None:
        seen = Seen()
        async with running(BrokerClient(database, group="g")) as client, await connect(database) as db:
            await client.register_reliable_handler(Subscription.to_topics("t"), seen, name="h")
            stream = await client.register_fire_and_forget(Subscription.to_topics("t"))
            for text in odd:
                await db.execute(f"select publish('t', ({text})::jsonb)".encode())
                await db.execute(f"select publish('t', '0', ({text})::jsonb)".encode())
            await db.execute("select publish('t', '1')")
            assert await seen.wait_for(1) == [1]
            for _ in range(4):
                with pytest.raises(DataError, match="cannot read the JSON"):
                    await anext(stream)
            assert (await anext(stream)).payload == 1
            await until(db, "select 1 where (select count(*) from dead_letters where handler = 'h') = 4")

    asyncio.run(story())
