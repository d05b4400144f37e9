"""The `nats` destination: rows of a pipeline to a JetStream stream.

A replay is recognised in two ways. The server remembers message ids for a while (`duplicate_window_s`). A stream that
one pipeline has for itself (`exclusive`) needs no such window: its last message tells exactly how far the pipeline
came, and every message names the one it must follow, so that a second writer is refused. Where several tasks send a
batch between them, the stream's messages behind the batch's beginning tell which of its rows are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.base import OWN_LANE, Destination, Failure, Lane, Sender, SendResult, TopicDefaults
from headgate.destinations.nats.chains import Chains, keep_chains, last_chains, last_sequences, take_chains
from headgate.destinations.nats.dictionaries import keeper_of, table_compressor, tables_of
from headgate.destinations.nats.errors import NO_RESPONDERS, stream_gone_error
from headgate.destinations.nats.fragments import split_large
from headgate.destinations.nats.jetstream import JetStream
from headgate.destinations.nats.options import NatsOptions
from headgate.destinations.nats.pool import borrow_publisher
from headgate.destinations.nats.publisher import Publisher
from headgate.destinations.nats.receipt import Receipt
from headgate.destinations.nats.streams import StreamInfo, stream_config
from headgate.destinations.nats.subjects import PLAIN, Subjects
from headgate.model import DeliveryError, OccupiedError, record
from headgate.model.position import origin_of
from headgate.wire.compress.tables import TableCompressor
from headgate.wire.nats.subject import covers

__all__ = ["EPOCH_HEADER", "NatsDestination"]

EPOCH_HEADER = b"Headgate-Epoch"  # which version of the routes chose the subject


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
            jetstream.ensure_stream(self.options, exclusive=self.exclusive)
            if self.zstd:
                keeper_of(self.options).ensure(jetstream)

    @property
    def takes_shares(self) -> bool:
        return True

    def lost(self) -> str | None:
        with JetStream.open(self.options) as jetstream:
            there = jetstream.stream_info(self.options.stream) is not None
        return None if there else f"stream {self.options.stream}"

    def last_message_id(self) -> str | None:
        if not self.exclusive:
            return None
        with JetStream.open(self.options) as jetstream:
            info = jetstream.stream_info(self.options.stream)
            last = jetstream.message(info.name, info.last_sequence) if info and info.messages else None
        return last.message_id if last is not None else None

    def learn(self, reports: Sequence[dict[str, Any]]) -> None:
        if self.zstd:
            keeper_of(self.options).take(reports)

    def details(self) -> dict[str, Any]:
        return {"compression_ratio": keeper_of(self.options).ratios()} if self.zstd else {}

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        """A stream that a row names is created with the subjects `stream.>`; the destination's own must keep the topic.

        NATS knows no partitions: a topic of several has the subjects `topic.0`, `topic.1` and so on.
        """
        options = self._options(Lane(stream))
        kept = options.subjects if self._is_own(stream) else self._ensure_stream(options, defaults)
        self._refuse_foreign(stream, topic, defaults, kept)
        return defaults.partitions

    def _ensure_stream(self, options: NatsOptions, defaults: TopicDefaults) -> Sequence[str]:
        """The subjects of a stream that a row names. One that is there already is as its owner wants it."""
        wanted = replace(
            options,
            max_age_s=defaults.max_age_s,
            max_bytes=defaults.max_bytes or -1,
            replicas=defaults.replicas,
        )
        with JetStream.open(wanted) as jetstream:
            info = jetstream.create_stream(stream_config(wanted))
        subjects: Sequence[str] = info.config["subjects"]
        return subjects

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        kept = self.options.subjects
        if not self._is_own(stream):
            info = self._info(stream)
            kept = info.config["subjects"] if info else self._options(Lane(stream)).subjects
        self._refuse_foreign(stream, topic, defaults, kept)
        return defaults.partitions

    def missing(self, stream: str | None, topic: str) -> str | None:
        options, info = self._options(Lane(stream)), self._info(stream)
        return None if info is not None else f"stream {options.stream} with the subjects {', '.join(options.subjects)}"

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        options = self._options(lane)
        subjects = Subjects("" if self._is_own(lane.stream) else f"{lane.stream}.", lane.partitions)
        with borrow_publisher(options, is_checked=not lane.goes_on) as publisher:
            compressor = table_compressor(self.options, publisher.jetstream()) if self.zstd else None
            kind = _SharedSender
            if self.exclusive and not lane.share:
                kind = _LateSender if lane.is_late else _ExclusiveSender
            sender = kind(self.name, publisher, compressor, subjects, epoch=lane.epoch, goes_on=lane.goes_on)
            if self.exclusive and lane.share:
                sender.leave_out(lane.behind)
            yield sender

    def _info(self, stream: str | None) -> StreamInfo | None:
        options = self._options(Lane(stream))
        with JetStream.open(options) as jetstream:
            return jetstream.stream_info(options.stream)

    def _refuse_foreign(self, stream: str | None, topic: str, defaults: TopicDefaults, kept: Sequence[str]) -> None:
        """Every subject of the topic must be among those that the stream keeps."""
        whole = topic if self._is_own(stream) else f"{stream}.{topic}"
        partitions = range(defaults.partitions)
        for subject in [f"{whole}.{number}" for number in partitions] if len(partitions) > 1 else [whole]:
            if not any(covers(pattern, subject) for pattern in kept):
                raise DeliveryError(
                    f"the stream {self._options(Lane(stream)).stream} keeps {', '.join(kept)}, not {subject}",
                    remedy="add the subject to the stream, or give the rows another one",
                )

    def _is_own(self, stream: str | None) -> bool:
        return stream is None or stream == self.options.stream

    def _options(self, lane: Lane) -> NatsOptions:
        if self._is_own(lane.stream):
            return self.options
        assert lane.stream is not None
        return replace(self.options, stream=self.stream_name(lane.stream), subjects=(f"{lane.stream}.>",))

    @staticmethod
    def stream_name(stream: str) -> str:
        """What JetStream calls a stream that a row names: its names have no dots."""
        return stream.replace(".", "_")


class _SharedSender(Sender):
    """Sends every row; the server drops what it already has by message id."""

    def __init__(
        self,
        name: str,
        publisher: Publisher,
        compressor: TableCompressor | None = None,
        subjects: Subjects = PLAIN,
        *,
        epoch: int | None = None,
        goes_on: bool = False,
    ) -> None:
        self._name = name
        self._goes_on = goes_on
        self._publisher = publisher
        self._compressor = compressor
        self._subjects = subjects
        self._epoch_line = b"" if epoch is None else b"%s: %d\r\n" % (EPOCH_HEADER, epoch)
        self._rows = 0
        self._payload_bytes = 0
        self._skipped = 0
        self._there: pa.Array | None = None  # ids of rows that the stream has
        self._published: list[pa.Array] = []  # subjects, in the order of the receipt's rows

    @property
    def _stream(self) -> str:
        return self._publisher.options.stream

    def leave_out(self, behind: str) -> None:
        """Send no row that the stream has behind this id."""
        jetstream = self._publisher.jetstream()
        last = jetstream.last_message(self._stream)
        if last is not None:
            _refuse_other_writer(self._stream, last.message_id, behind)
        ids = jetstream.message_ids(self._stream, behind)
        self._there = pa.array(sorted(ids), pa.string()) if ids else None

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        self._payload_bytes += pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        batch, headers = split_large(self._subjects.put(batch), self._publisher.max_payload)
        if self._there is not None:
            is_new = pc.invert(pc.is_in(batch.column(record.MESSAGE_ID), self._there))
            self._skipped += batch.num_rows - (pc.sum(is_new).as_py() or 0)
            batch, headers = batch.filter(is_new), headers.filter(is_new) if headers is not None else None
        if batch.num_rows:
            self._publish(batch, headers)

    def _publish(
        self, batch: pa.RecordBatch, headers: pa.Array | None, expected_last_sequence: int | None = None
    ) -> None:
        topics, ids, payloads = (batch.column(name) for name in record.DELIVERY_COLUMNS)
        if self._compressor:
            # Parts are compressed one by one, so that a replay cuts a row at the same bytes.
            payloads, lines = self._compressor.compress(tables_of(topics), payloads)
            headers = lines if headers is None else pc.binary_join_element_wise(headers, lines, b"")
        self._published.append(topics)
        self._publisher.publish(
            topics, ids, payloads, headers=self._with_epoch(headers), expected_last_sequence=expected_last_sequence
        )

    def _with_epoch(self, headers: pa.Array | None) -> pa.Array | bytes | None:
        if not self._epoch_line:
            return headers
        if headers is None:
            return self._epoch_line
        return pc.binary_join_element_wise(headers, pa.scalar(self._epoch_line, headers.type), b"")

    def finish(self) -> SendResult:
        receipt = self._publisher.flush()
        duplicates = self._skipped + receipt.duplicates
        reports = tuple(report.as_dict() for report in self._compressor.reports()) if self._compressor else ()
        failures = tuple(failure.as_dict() for failure in self._failures(receipt))
        return SendResult(self._name, self._rows, self._payload_bytes, duplicates, reports, failures)

    def _failures(self, receipt: Receipt) -> Iterator[Failure]:
        """What the receipt says of rows, said of topics: the first error of each counts."""
        told: set[str] = set()
        for failure in receipt.failures:
            error = failure.error
            if failure.code == NO_RESPONDERS and self._publisher.jetstream().stream_info(self._stream) is None:
                error = stream_gone_error(self._stream)
            rows = pa.array(failure.rows, pa.int64())
            for counted in pa.chunked_array(self._published).take(rows).value_counts().to_pylist():
                topic = self._subjects.topic_of(counted["values"])
                if topic not in told:
                    told.add(topic)
                    yield Failure(topic, counted["counts"], error)


class _ExclusiveSender(_SharedSender):
    """Begins behind the stream's last message, and lets nobody come between."""

    _sequence: int | None = None  # the stream's last one, once everything so far is stored
    _last_id = ""
    _info: StreamInfo | None = None  # as it was at the beginning, if it was looked at
    _chains: Chains

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
            lines = self._chains.lines(batch.column(record.TOPIC), self._sequence + 1, self._look_up)
            headers = lines if headers is None else pc.binary_join_element_wise(headers, lines, b"")
            super()._publish(batch, headers, self._sequence)
            self._sequence += batch.num_rows
            self._chains.end = self._chains.end[0], self._sequence, batch.column(record.MESSAGE_ID)[-1].as_py()

    def _look_up(self, tables: Sequence[str]) -> dict[str, int]:
        """Over a connection of its own: the publisher's may be busy. What is on its way is of other tables."""
        if self._info is not None and not self._info.last_sequence:
            return dict.fromkeys(tables, 0)
        with JetStream.open(self._publisher.options) as jetstream:
            info = self._info or jetstream.stream_info(self._stream)
            if info is None:
                raise stream_gone_error(self._stream)
            return last_sequences(jetstream, info, tables)

    def finish(self) -> SendResult:
        result = super().finish()
        if self._sequence is not None and not result.failures:
            keep_chains(self._publisher.options, self._chains)
        return result

    def _look(self, first_id: str) -> int:
        """The stream's last sequence; remembers the last row of ours that it holds."""
        kept = last_chains(self._publisher.options) if self._goes_on else None
        if kept is not None and origin_of(kept.end[2]) == origin_of(first_id):
            self._chains = kept
            _, sequence, self._last_id = kept.end
            return sequence
        stream, jetstream = self._stream, self._publisher.jetstream()
        info = jetstream.stream_info(stream)
        if info is None:
            raise stream_gone_error(stream)
        last = jetstream.message(stream, info.last_sequence) if info.messages else None
        if last is not None:
            _refuse_other_writer(stream, last.message_id, first_id)
            self._last_id = last.message_id
        self._info = info
        end = info.created, info.last_sequence, last.message_id if last is not None else ""
        self._chains = take_chains(self._publisher.options, end)
        return info.last_sequence


def _refuse_other_writer(stream: str, last_id: str, own_id: str) -> None:
    """A stream that one pipeline has for itself ends with a message of its own."""
    if origin_of(last_id) != origin_of(own_id):
        raise OccupiedError(
            f"somebody else writes to the stream {stream}: its last message id is {last_id!r}",
            remedy="give this pipeline a stream of its own, or set exclusive = false on the destination",
        )


class _LateSender(_ExclusiveSender):
    """Puts dead letters behind the stream's last message, with ids that sort there, too."""

    def _publish(
        self, batch: pa.RecordBatch, headers: pa.Array | None, expected_last_sequence: int | None = None
    ) -> None:
        if self._sequence is None:
            self._sequence = self._look(batch.column(record.MESSAGE_ID)[0].as_py())
        last, self._last_id = self._last_id, ""
        if last:
            ids = pa.array([f"{last}~r{self._sequence + number:08d}" for number in range(batch.num_rows)])
            at = batch.schema.get_field_index(record.MESSAGE_ID)
            batch = batch.set_column(at, record.MESSAGE_ID, ids)
        super()._publish(batch, headers, expected_last_sequence)
        self._last_id = batch.column(record.MESSAGE_ID)[-1].as_py()
