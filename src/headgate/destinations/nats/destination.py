"""The `nats` destination: rows of a pipeline to a JetStream stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import Destination, Sender, SendResult
from headgate.destinations.nats.jetstream import JetStream
from headgate.destinations.nats.options import NatsOptions
from headgate.destinations.nats.pool import borrow_publisher
from headgate.destinations.nats.publisher import Publisher
from headgate.model import record

__all__ = ["NatsDestination"]


@dataclass(frozen=True, slots=True)
class NatsDestination(Destination):
    """Every row is acknowledged by the server, and known to it by its message id."""

    name: str
    options: NatsOptions

    def ensure(self) -> None:
        """Create the stream, or check that the one that is there keeps our subjects and our promises."""
        with JetStream.open(self.options) as jetstream:
            jetstream.ensure_stream(self.options)

    @contextmanager
    def open(self) -> Iterator[Sender]:
        with borrow_publisher(self.options) as publisher:
            yield _NatsSender(self.name, publisher)


class _NatsSender(Sender):
    def __init__(self, name: str, publisher: Publisher) -> None:
        self._name = name
        self._publisher = publisher
        self._payload_bytes = 0

    def send(self, batch: pa.RecordBatch) -> None:
        topics, message_ids, payloads = (batch.column(name) for name in record.DELIVERY_COLUMNS)
        self._payload_bytes += pc.sum(pc.binary_length(payloads)).as_py() or 0
        self._publisher.publish(topics, message_ids, payloads)

    def finish(self) -> SendResult:
        receipt = self._publisher.flush().raise_for_failures()
        return SendResult(self._name, receipt.acked, self._payload_bytes, receipt.duplicates or 0)
