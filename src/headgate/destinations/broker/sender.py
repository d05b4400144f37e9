"""Rows to events by COPY, a few megabytes in one transaction.

With rows in one order, every transaction also records the last row of each topic it wrote to. A replay reads that
first, holding it, and leaves out what is there; so does a writer that was thought dead and is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.destinations.base import Failure, Lane, Sender, SendResult
from headgate.model import DataError, HeadgateError, record
from headgate.model.position import origin_of

if TYPE_CHECKING:
    from headgate.destinations.broker.destination import BrokerDestination

__all__ = ["BrokerSender"]

_CHUNK_BYTES = 4 << 20
# Statements name the schema and end what they begin: behind a pooler, the next transaction has another session.
_COPY = "copy {schema}.events (topic, payload, metadata) from stdin (format csv)"
_BEGIN = "select topic, last_id from {schema}.begin_writing_v1(%s, %s)"
_END = "select {schema}.end_writing_v1(%s, %s, %s)"
# Text becomes JSON in the server, which knows all of its rules.
_STAGE = "create temporary table staged (topic text, payload text, metadata jsonb) on commit drop"
_COPY_STAGED = "copy pg_temp.staged (topic, payload, metadata) from stdin (format csv)"
_UNSTAGE = """
insert into {schema}.events (topic, payload, metadata)
select topic, to_jsonb(payload), metadata from pg_temp.staged order by ctid
"""
_NOT_JSON = (psycopg.DataError, psycopg.errors.CheckViolation, psycopg.errors.ProgramLimitExceeded)


class BrokerSender(Sender):
    """Publishes the rows of one lane."""

    def __init__(
        self, destination: BrokerDestination, connection: psycopg.Connection, lane: Lane, *, is_ordered: bool
    ) -> None:
        self._destination = destination
        self._connection = connection
        self._stream = lane.stream
        self._epoch = lane.epoch
        self._is_ordered = is_ordered
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = self._payload_bytes = self._skipped = 0
        self._failures: dict[str, tuple[int, HeadgateError]] = {}

    def send(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        size = pc.sum(pc.binary_length(batch.column(record.PAYLOAD))).as_py() or 0
        self._rows += batch.num_rows
        self._payload_bytes += size
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= _CHUNK_BYTES:
            self._flush()

    def finish(self) -> SendResult:
        self._flush()
        failures = tuple(Failure(topic, *found).as_dict() for topic, found in self._failures.items())
        return SendResult(self._destination.name, self._rows, self._payload_bytes, self._skipped, failures=failures)

    def _flush(self) -> None:
        """What waits, in one transaction."""
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        with self._connection.transaction():
            if self._is_ordered:
                self._write_in_order(rows)
            else:
                self._write(rows)

    def _write_in_order(self, rows: pa.Table) -> None:
        writer = origin_of(rows.column(record.MESSAGE_ID)[0].as_py())
        topics = rows.column(record.TOPIC).combine_chunks().dictionary_encode()
        names = [self._destination.topic_name(self._stream, topic) for topic in topics.dictionary.to_pylist()]
        reached: dict[str, str] = dict(self._connection.execute(self._text(_BEGIN), [writer, names]).fetchall())
        last_ids = pa.array([reached[name] for name in names], pa.string()).take(topics.indices)
        new = rows.filter(pc.greater(rows.column(record.MESSAGE_ID), last_ids))
        self._skipped += rows.num_rows - new.num_rows
        if new.num_rows:
            self._copy(new)
            newest = new.group_by(record.TOPIC).aggregate([(record.MESSAGE_ID, "max")]).to_pydict()
            written = [self._destination.topic_name(self._stream, topic) for topic in newest[record.TOPIC]]
            values = [writer, written, newest[f"{record.MESSAGE_ID}_max"]]
            self._connection.execute(self._text(_END), values)

    def _write(self, rows: pa.Table) -> None:
        """All at once; if there is something wrong with a row, topic by topic, so that the others get theirs."""
        try:
            self._copy(rows)
        except DataError:
            for topic in rows.column(record.TOPIC).unique().to_pylist():
                self._write_topic(topic, rows.filter(pc.equal(rows.column(record.TOPIC), topic)))

    def _write_topic(self, topic: str, rows: pa.Table) -> None:
        try:
            self._copy(rows)
        except DataError as error:
            known, first = self._failures.get(topic, (0, error))
            self._failures[topic] = (known + rows.num_rows, first)

    def _copy(self, rows: pa.Table) -> None:
        try:
            data = self._as_csv(rows)
            # A savepoint: `staged` goes with it if the rows are refused.
            with self._connection.transaction(), self._connection.cursor() as cursor:
                if self._destination.payload == "text":
                    self._copy_as_text(cursor, data)
                else:
                    with cursor.copy(self._text(_COPY)) as copy:
                        copy.write(data)
        except (*_NOT_JSON, pa.ArrowInvalid) as error:
            raise self._refused(rows, error) from None

    def _copy_as_text(self, cursor: psycopg.Cursor, data: pa.Buffer) -> None:
        cursor.execute(_STAGE)
        with cursor.copy(_COPY_STAGED) as copy:
            copy.write(data)
        cursor.execute(self._text(_UNSTAGE))
        cursor.execute("drop table pg_temp.staged")

    def _text(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(schema=sql.Identifier(self._destination.schema))

    def _as_csv(self, rows: pa.Table) -> pa.Buffer:
        names = rows.column(record.TOPIC).dictionary_encode().combine_chunks()
        topics = [self._destination.topic_name(self._stream, topic) for topic in names.dictionary.to_pylist()]
        columns = [
            pa.array(topics, pa.string()).take(names.indices),
            rows.column(record.PAYLOAD).cast(pa.string()),
            self._metadata(rows.column(record.MESSAGE_ID)),
        ]
        output = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        csv.write_csv(pa.table(columns, ["topic", "payload", "metadata"]), output, options)
        return output.getvalue()

    def _metadata(self, ids: pa.ChunkedArray) -> pa.Array:
        """By its id a reader knows a row that was delivered again."""
        escaped = pc.replace_substring(pc.replace_substring(ids, "\\", "\\\\"), '"', '\\"')
        rest = "}" if self._epoch is None else f',"epoch":{self._epoch}}}'
        return pc.binary_join_element_wise('{"message_id":"', escaped, f'"{rest}', "")

    def _refused(self, rows: pa.Table, error: Exception) -> DataError:
        message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        topic = rows.column(record.TOPIC)[0].as_py()
        remedy = 'payloads must be JSON: format = "json" on the pipeline, or payload = "text" on the destination'
        return DataError(message or "a payload is not UTF-8", where=f"topic {topic}", remedy=remedy)
