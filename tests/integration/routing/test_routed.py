"""Rows that say where they go, through Spark to real destinations. Names begin with the check they make."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from headgate.destinations.memory import MemoryDestination
from headgate.destinations.nats import JetStream, NatsDestination
from headgate.model import Status

from .conftest import MakeSpec, Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_v2_a_topic_column_makes_a_topic_of_each_kind(make_spec: MakeSpec, run: Run, memory: MemoryDestination) -> None:
    supervisor = run(make_spec(memory, routing={"topic_column": "kind", "default_topic": "other"}))
    assert supervisor.join(90)
    assert supervisor.report.error is None
    assert len(memory.messages) == 250
    for message in memory.messages:
        assert json.loads(message.payload)["kind"] == message.topic
    assert len({message.topic for message in memory.messages}) >= 3
    assert [m.message_id for m in memory.messages] == sorted(m.message_id for m in memory.messages)
    assert supervisor.report.routing["routed_total"] == 250
    assert supervisor.report.status is Status.STOPPED


def test_v2_streams_and_topics_in_nats(make_spec: MakeSpec, run: Run, nats: NatsDestination) -> None:
    prefix = nats.options.stream
    spec = make_spec(
        nats,
        transforms=[{"type": "select", "columns": ["*", f"concat('{prefix}-', kind) as tenant", "kind as what"]}],
        routing={
            "stream_column": "tenant",
            "default_stream": f"{prefix}-rest",
            "topic_column": "what",
            "default_topic": "rest",
            "strip_routing_columns": True,
        },
    )
    supervisor = run(spec)
    assert supervisor.join(90)
    assert supervisor.report.error is None
    counted: Counter[str] = Counter()
    with JetStream.open(nats.options) as jetstream:
        for entry in supervisor.routing.table.describe() if supervisor.routing else ():
            info = jetstream.stream_info(entry["stream"])
            assert info is not None
            assert info.config["subjects"] == [f"{entry['stream']}.>"]
            message = jetstream.last_message(entry["stream"])
            assert message is not None
            assert message.subject == f"{entry['stream']}.{entry['topic']}"
            row = json.loads(message.payload)
            assert row["kind"] == entry["topic"]
            assert "tenant" not in row
            assert ("Headgate-Epoch", "1") in message.headers.fields
            counted[entry["topic"]] = info.messages
            assert entry["rows_total"] == info.messages
            jetstream.delete_stream(entry["stream"])
    assert counted.total() == 250
    assert len(counted) >= 3
