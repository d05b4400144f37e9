"""The `nats` destination: rows of a pipeline to a JetStream stream.

A replay is recognised in two ways. The server remembers message ids for a while (`duplicate_window_s`). A stream that
one pipeline has for itself (`exclusive`) needs no such window: its last message tells exactly how far the pipeline
came, and every message names the one it must follow, so that a second writer is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender, SendResult
from headgate.destinations.nats.chunks import split_large
from headgate.destinations.nats.dictionaries import keeper_of, table_compressor, tables_of
from headgate.destinations.nats.jetstream import JetStream
from headgate.destinations.nats.options import NatsOptions
from headgate.destinations.nats.pool import borrow_publisher
from headgate.destinations.nats.publisher import Publisher
from headgate.model import OccupiedError, record
from headgate.wire.compress import TableCompressor

__all__ = ["NatsDestination"]


@dataclass(frozen=True, slots=True)
class NatsDestination(Destination):
    """Every row is acknowledged by the server, and known to it by its message id."""

    name: str
    options: NatsOptions
    exclusive: bool = False
    zstd: bool = False

    def ensure(self) -> None:
        """Create the stream, or check that the one that is there keeps our subjects and our promises."""
        with JetStream.open(self.options) as jetstream:
            jetstream.ensure_stream(self.options)
            if self.zstd:
                keeper_of(self.options).ensure(jetstream)

    def learn(self, reports: Sequence[dict[str, Any]]) -> None:
        if self.zstd:
            keeper_of(self.options).take(reports)

    def details(self) -> dict[str, Any]:
        return {"compression_ratio": keeper_of(self.options).ratios()} if self.zstd else {}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        with borrow_publisher(self.options) as publisher:
            compressor = table_compressor(self.options, publisher.jetstream()) if self.zstd else None
            yield (_ExclusiveSender if self.exclusive else _SharedSender)(self.name, publisher, compressor)


class _SharedSender(Sender):
    """Sends every row; the server drops what it already has by message id."""

    def __init__(self, name: str, publisher: Publisher, compressor: TableCompressor | None = None) -> None:
        self._name = name
        self._publisher = publisher
        self._compressor = compressor
        self._rows = 0
        self._payload_bytes = 0
        self._skipped = 0

    def send(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        self._publish(*split_large(batch, self._publisher.max_payload))

    def _publish(
        self, batch: pa.RecordBatch, headers: pa.Array | None, expected_last_sequence: int | None = None
    ) -> None:
        topics, ids, payloads = (batch.column(name) for name in record.DELIVERY_COLUMNS)
        if self._compressor:
            # Parts are compressed one by one, so that a replay cuts a row at the same bytes.
            payloads, lines = self._compressor.compress(tables_of(topics), payloads)
            headers = lines if headers is None else pc.binary_join_element_wise(headers, lines, b"")
        self._publisher.publish(topics, ids, payloads, headers=headers, expected_last_sequence=expected_last_sequence)

    def finish(self) -> SendResult:
        receipt = self._publisher.flush().raise_for_failures()
        duplicates = self._skipped + (receipt.duplicates or 0)
        reports = tuple(report.as_dict() for report in self._compressor.reports()) if self._compressor else ()
        return SendResult(self._name, self._rows, self._payload_bytes, duplicates, reports)


class _ExclusiveSender(_SharedSender):
    """Begins behind the stream's last message, and lets nobody come between."""

    _sequence: int | None = None  # the stream's last one, once everything so far is stored
    _last_id = ""

    def _publish(
        self, batch: pa.RecordBatch, headers: pa.Array | None, expected_last_sequence: int | None = None
    ) -> None:
        if self._sequence is None:
            self._sequence = self._look(batch.column(record.MESSAGE_ID)[0].as_py())
        if self._last_id:
            is_new = pc.greater(batch.column(record.MESSAGE_ID), self._last_id)
            self._skipped += batch.num_rows - (pc.sum(is_new).as_py() or 0)
            batch, headers = batch.filter(is_new), headers.filter(is_new) if headers is not None else None
        if batch.num_rows:
            super()._publish(batch, headers, self._sequence)
            self._sequence += batch.num_rows

    def _look(self, first_id: str) -> int:
        """The stream's last sequence; remembers the last row of ours that it holds."""
        stream = self._publisher.options.stream
        jetstream = self._publisher.jetstream()
        info = jetstream.stream_info(stream)
        last = jetstream.message(stream, info.last_sequence) if info and info.messages else None
        if last is not None:
            if _origin(last.message_id) != _origin(first_id):
                raise OccupiedError(
                    f"somebody else writes to the stream {stream}: its last message id is {last.message_id!r}",
                    remedy="give this pipeline a stream of its own, or set exclusive = false on the destination",
                )
            self._last_id = last.message_id
        return info.last_sequence if info else 0


def _origin(message_id: str) -> str:
    """What stands before the position, which is two numbers: `origin-major-ordinal`."""
    return message_id.rsplit("-", 2)[0]
