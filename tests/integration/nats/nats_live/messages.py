"""Columns to publish, and an independent reader of what a stream holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import nats
import pyarrow as pa
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from headgate.destinations.nats import NatsOptions, Publisher, Receipt

Columns = tuple[pa.Array, pa.Array, pa.Array]


def columns(topics: Sequence[str], prefix: str = "id", payload: bytes = b"x") -> Columns:
    """One message per topic; ids are `<prefix>-<n>`, payloads end in the row number."""
    ids = [f"{prefix}-{row}" for row in range(len(topics))]
    payloads = [payload + b"%d" % row for row in range(len(topics))]
    return pa.array(topics, pa.string()), pa.array(ids, pa.string()), pa.array(payloads, pa.binary())


def publish_and_flush(publisher: Publisher, data: Columns) -> Receipt:
    """All or an error."""
    publisher.publish(*data)
    return publisher.flush().raise_for_failures()


def read_stream(options: NatsOptions, count: int) -> list[tuple[str, str, bytes]]:
    """Subject, message id and payload of the first messages of a stream, read with the official client."""
    return asyncio.run(_read(options, count))


async def _read(options: NatsOptions, count: int) -> list[tuple[str, str, bytes]]:
    client = await nats.connect(options.url)
    found: list[tuple[str, str, bytes]] = []
    try:
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE)
        pull = await client.jetstream().pull_subscribe("", stream=options.stream, config=config)
        while len(found) < count:
            messages = await pull.fetch(min(1_000, count - len(found)), timeout=10)
            found += [(each.subject, (each.headers or {}).get("Nats-Msg-Id", ""), each.data) for each in messages]
    finally:
        await client.close()
    return found
