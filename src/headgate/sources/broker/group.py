"""A group of the broker as a source: where it is, what comes next, and the events between two positions.

Positions are given by the dispatcher and never change, so what lies between two of them can be read again as long as
the group's cursor has not passed it. The cursor follows what Spark has recorded as done.

Two things change what a recorded position means: `seek` moves the group, and a failover may lose the last events and
give their positions to others. So an offset says by whose history it counts and how often the group had been moved,
and the next batch begins where the server says. Events that come again then have new message ids: with the known ones,
destinations would take them for what they have already.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, LiteralString, Self

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, StateError
from headgate.model.position import timeline_text
from headgate.model.record import OP, POSITION
from headgate.postgres import open_connection, server_address
from headgate.sources.broker.options import BrokerSourceOptions
from headgate.sources.random.generator import position_column

__all__ = ["SCHEMA", "BrokerGroup", "StreamOffset"]

SCHEMA = (
    "id bigint, topic string, payload string, metadata string, at timestamp, pos bigint, "
    f"subscription_ids array<int>, {POSITION} string, {OP} string"
)
logger = logging.getLogger(__name__)

_COLUMNS = {
    "id": pa.int64(),
    "topic": pa.string(),
    "payload": pa.string(),
    "metadata": pa.string(),
    "at": pa.int64(),
    "pos": pa.int64(),
    "subscription_ids": pa.string(),
    "is_retry": pa.bool_(),
    "is_gone": pa.bool_(),
}
_CHUNK = 10_000  # events that one query brings
_FIRST_TIMELINE = 0xF0000000  # sorts behind the positions of 0.2, which are 19 decimal digits
_ROUNDS = 20  # of dispatching before what is there is read
_LEASE_LOST = "HG001"
_NONE_THERE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction)

_BEGIN = """
select coalesce({schema}.group_cursor(gno), 0), {schema}.server_history(), seeks
from {schema}.subscription_groups where id = %s
"""
_LAST = "select pos from {schema}.dispatcher_state order by id desc limit 1"
_PLAN = "select from_pos, end_pos, history, seeks, moved from {schema}.plan_stream_v1(%s, %s, %s, %s, %s, %s, %s)"
_CALLED = "plan_stream_v1(text, text, bigint, text, int, int, bigint)"
_COMMIT = "select {schema}.commit_stream_v1(%s, %s, %s, %s, %s)"
_EVENTS = """
copy (
  select id, topic, payload, metadata, (extract(epoch from at) * 1000000)::bigint, pos,
    array_to_string(subscription_ids, ','), retry is not null, gap is not null
  from {schema}.read_next_events_v1({group}, {after}, {chunk}, true, null)
  where pos <= (select r.pos from {schema}.resume_history_v1({history}, {end}) as r)
  order by pos
) to stdout (format csv)
"""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where a stream is, as Spark keeps it in its checkpoint."""

    pos: int
    history: str | None = None  # whose positions these are; checkpoints of 0.2 do not say
    seeks: int | None = None  # how often the group had been moved
    moves: int = 0  # how often this stream did not go on where it had been
    after: int | None = None  # where the batch that ends here begins, if not at the end of the one before

    @classmethod
    def from_spark(cls, offset: Mapping[str, Any]) -> Self:
        return cls(**offset)

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


class BrokerGroup:
    """The group that the options name. Keeps one connection; picklable without it."""

    def __init__(self, options: BrokerSourceOptions) -> None:
        self._options = options
        self._connection: psycopg.Connection | None = None

    def begin(self) -> StreamOffset:
        """Subscribe, which has an effect once, and where the group is."""
        wanted = self._options.subscription()
        with self._session() as connection:
            values = [self._options.group, wanted.condition, json.dumps(wanted.params or {})]
            connection.execute(self._text("select {schema}.subscribe_v1(%s, %s, %s, null, null)"), values)
            (found,) = connection.execute(self._text(_BEGIN), [self._options.group]).fetchall()
            return StreamOffset(*found)

    def check(self) -> None:
        """Whether the broker is installed, in this version, and may be read."""
        with self._session() as connection:
            values = [f"{self._options.schema}.{_CALLED}"]
            (may_call,) = connection.execute("select has_function_privilege(%s, 'execute')", values).fetchall()[0]
            if not may_call:
                raise psycopg.errors.InsufficientPrivilege(f"the functions of {self._options.schema} may not be called")

    def last(self) -> int:
        """The newest position of all, after what is there has been dispatched."""
        with self._session() as connection:
            self._dispatch(connection)
        return self.newest()

    def newest(self) -> int:
        """The newest position of all; what is not dispatched yet has none."""
        with self._session() as connection:
            return int(connection.execute(self._text(_LAST)).fetchall()[0][0])

    def plan(self, start: StreamOffset, most: int, until: int) -> StreamOffset:
        """Where the next batch ends, after `most` events at most and not behind `until`; `start` if there is none."""
        with self._session() as connection:
            self._dispatch(connection)
            values = [self._options.group, self._options.reader, start.pos, start.history, start.seeks, most, until]
            ((begin, end, history, seeks, moved),) = connection.execute(self._text(_PLAN), values).fetchall()
        if moved:
            logger.warning("group %s was moved: it goes on after position %d", self._options.group, begin)
            return StreamOffset(end, history, seeks, start.moves + 1, begin)
        return start if end == start.pos else StreamOffset(end, history, seeks, start.moves)

    def commit(self, reached: StreamOffset) -> None:
        """Everything up to here is delivered. What was read before the group was moved does not move it again."""
        with self._session() as connection:
            values = [self._options.group, self._options.reader, reached.pos, reached.history, reached.seeks]
            connection.execute(self._text(_COMMIT), values)

    def read(self, after: int, end: StreamOffset) -> Iterator[pa.RecordBatch]:
        """The events after a position, up to another one. Without those of a past that a failover has lost."""
        while after < end.pos:
            with self._session() as connection:
                rows = self._fetch(connection, after, end)
            if not rows.num_rows:
                return
            gone = rows.filter(rows.column("is_gone"))
            if gone.num_rows and self._options.fail_on_data_loss:
                raise StateError(
                    f"events at position {gone.column('pos')[0]} of the group {self._options.group} are gone unread",
                    remedy="raise max_lag; to go on with what is there, set failOnDataLoss to false",
                )
            # Retries are for handlers, which have names; a stream has none.
            kept = rows.filter(pc.invert(pc.or_(rows.column("is_gone"), rows.column("is_retry"))))
            yield from _batches(kept, end.moves)
            after = rows.column("pos")[-1].as_py()

    def release(self) -> None:
        """Let others read the group without waiting for the end of the lease."""
        with self._session() as connection:
            statement = self._text("select {schema}.release_group_v1(%s, %s)")
            connection.execute(statement, [self._options.group, self._options.reader])
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _dispatch(self, connection: psycopg.Connection) -> None:
        """Dispatch what waits, for all groups: the source needs no other program to run."""
        statement = self._text("select more from {schema}.poll_for_events_v1()")
        for _ in range(_ROUNDS):
            if not connection.execute(statement).fetchall()[0][0]:
                return

    def _fetch(self, connection: psycopg.Connection, after: int, end: StreamOffset) -> pa.Table:
        """The next events, without a Python object for any of them."""
        place = {"group": self._options.group, "after": after, "chunk": _CHUNK, "end": end.pos, "history": end.history}
        data = io.BytesIO()
        with connection.cursor() as cursor, cursor.copy(self._text(_EVENTS, **place)) as copy:
            for part in copy:
                data.write(part)
        return _table(data)

    def _text(self, statement: LiteralString, **values: object) -> sql.Composed:
        """A statement with the name of the schema in it: behind a pooler, a session's settings are somebody else's."""
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return sql.SQL(statement).format(schema=sql.Identifier(self._options.schema), **literals)

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection]:
        try:
            if self._connection is None:
                self._connection = open_connection(self._options.url, "headgate broker", prepare_threshold=None)
            yield self._connection
        except psycopg.Error as error:
            self.close()
            raise _ours(error, self._options) from None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_connection": None}


def _table(data: io.BytesIO) -> pa.Table:
    if not data.tell():
        return pa.Table.from_pylist([], pa.schema(_COLUMNS))
    return csv.read_csv(
        pa.py_buffer(data.getvalue()),
        csv.ReadOptions(column_names=list(_COLUMNS), block_size=data.tell() + 1),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=_COLUMNS,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _batches(rows: pa.Table, moves: int) -> list[pa.RecordBatch]:
    numbers = position_column(rows.column("pos").to_numpy().astype(np.uint64))
    at = rows.column("at").cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    columns = {name: rows.column(name) for name in ("id", "topic", "payload", "metadata")} | {
        "at": at,
        "pos": rows.column("pos"),
        "subscription_ids": pc.split_pattern(rows.column("subscription_ids"), ",").cast(pa.list_(pa.int32())),
        POSITION: pc.binary_join_element_wise(timeline_text(_FIRST_TIMELINE + moves), numbers, ""),
        OP: pa.repeat(pa.scalar("insert"), rows.num_rows),
    }
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches()
    return batches


def _another_reader(group: str) -> StateError:
    return StateError(f"the group {group} has another reader", remedy="stop that one, or give this one its own group")


def _ours(error: psycopg.Error, options: BrokerSourceOptions) -> HeadgateError:
    message, where = error.diag.message_primary or str(error), f"schema {options.schema}"
    if error.sqlstate == _LEASE_LOST:
        return _another_reader(options.group)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return AuthError(
            message, where=where, remedy=f"select {options.schema}.grant_usage('consumer', to_role => ...)"
        )
    if isinstance(error, _NONE_THERE):
        return StateError(message, where=where, remedy="run `headgate broker install`")
    if isinstance(error, psycopg.errors.InvalidParameterValue):
        return ConfigError(message, where="condition", remedy="correct the condition of the source")
    if isinstance(error, psycopg.errors.UndefinedObject):
        return StateError(message, where=where, remedy="the group is gone; reset the pipeline to begin anew")
    return ConnectError(
        message, where=server_address(options.url), remedy="check that PostgreSQL runs and takes connections"
    )
