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

from headgate.destinations.base import Lane
from headgate.destinations.postgres import ChunkSender
from headgate.model import DataError, record

if TYPE_CHECKING:
    from headgate.destinations.broker.destination import BrokerDestination

__all__ = ["BrokerSender"]

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


class BrokerSender(ChunkSender):
    """Publishes the rows of one lane."""

    def __init__(
        self, destination: BrokerDestination, connection: psycopg.Connection, lane: Lane, *, is_ordered: bool
    ) -> None:
        super().__init__(destination.name, connection)
        self._destination = destination
        self._lane = lane
        self._stream = lane.stream
        self._epoch = lane.epoch
        self._is_ordered = is_ordered

    def _write(self, rows: pa.Table) -> None:
        if self._is_ordered:
            self._write_in_order(rows)
        else:
            self._write_all(rows)

    def _write_in_order(self, rows: pa.Table) -> None:
        writer = self._lane.writer(rows.column(record.MESSAGE_ID)[0].as_py())
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

    def _write_all(self, rows: pa.Table) -> None:
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
            self._fail(topic, rows.num_rows, error)

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
