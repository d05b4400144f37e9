"""A group of the broker as a source: where it is, what comes next, and the events between two positions.

Positions are given by the dispatcher and never change, so what lies between two of them can be read again as long as
the group's cursor has not passed it. The cursor follows what Spark has recorded as done.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, StateError
from headgate.model.record import OP, POSITION
from headgate.sources.broker.options import BrokerSourceOptions

__all__ = ["SCHEMA", "BrokerGroup"]

SCHEMA = (
    "id bigint, topic string, payload string, metadata string, at timestamp, pos bigint, "
    f"subscription_ids array<int>, {POSITION} string, {OP} string"
)
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
_ROUNDS = 20  # of dispatching before what is there is read
_LEASE_LOST = "HG001"
_NONE_THERE = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction)

_CURSOR = "select group_cursor(gno) from subscription_groups where id = %s"
_REACH = """
select max(n.pos) from subscription_groups as g, next_positions(g.gno, greatest(%s, g.overrun_to), %s) as n
where g.id = %s and n.pos <= %s
"""
_EVENTS = """
copy (
  select id, topic, payload, metadata, (extract(epoch from at) * 1000000)::bigint, pos,
    array_to_string(subscription_ids, ','), retry is not null, gap is not null
  from read_next_events_v1({group}, {after}, {chunk}, true, null) where pos <= {end} order by pos
) to stdout (format csv)
"""


class BrokerGroup:
    """The group that the options name. Keeps one connection; picklable without it."""

    def __init__(self, options: BrokerSourceOptions) -> None:
        self._options = options
        self._connection: psycopg.Connection | None = None

    def begin(self) -> int:
        """Subscribe, which has an effect once, and where the group is."""
        wanted = self._options.subscription()
        with self._session() as connection:
            values = [self._options.group, wanted.condition, json.dumps(wanted.params or {})]
            connection.execute("select subscribe_v1(%s, %s, %s, null, null)", values)
            return int(connection.execute(_CURSOR, [self._options.group]).fetchall()[0][0] or 0)

    def last(self) -> int:
        """The newest position of all, after what is there has been dispatched."""
        with self._session() as connection:
            self._dispatch(connection)
            query = "select pos from dispatcher_state order by id desc limit 1"
            return int(connection.execute(query).fetchall()[0][0])

    def reach(self, after: int, most: int, until: int) -> int:
        """The position of the last of the next `most` events, up to `until`; `after` if there is none."""
        with self._session() as connection:
            self._dispatch(connection)
            self._hold(connection)
            values = [after, most, self._options.group, until]
            return int(connection.execute(_REACH, values).fetchall()[0][0] or after)

    def commit(self, position: int) -> None:
        """Everything up to here is delivered."""
        with self._session() as connection:
            epoch = self._hold(connection)
            (stored,) = connection.execute(_CURSOR, [self._options.group]).fetchall()[0]
            if stored is None or stored < position:
                values = [self._options.group, position, self._options.reader, epoch]
                connection.execute("select set_group_cursor_v1(%s, %s, false, %s, %s)", values)

    def read(self, after: int, end: int) -> Iterator[pa.RecordBatch]:
        """The events after a position, up to another one."""
        while after < end:
            with self._session() as connection:
                rows = _fetch(connection, self._options.group, after, end)
            if not rows.num_rows:
                return
            gone = rows.filter(rows.column("is_gone"))
            if gone.num_rows and self._options.fail_on_data_loss:
                raise StateError(
                    f"events at position {gone.column('pos')[0]} of the group {self._options.group} are gone unread",
                    remedy="raise max_lag; to go on with what is there, set failOnDataLoss to false",
                )
            # Retries are for handlers, which have names; a stream has none.
            yield from _batches(rows.filter(pc.invert(pc.or_(rows.column("is_gone"), rows.column("is_retry")))))
            after = rows.column("pos")[-1].as_py()

    def release(self) -> None:
        """Let others read the group without waiting for the end of the lease."""
        with self._session() as connection:
            connection.execute("select release_group_v1(%s, %s)", [self._options.group, self._options.reader])
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _dispatch(self, connection: psycopg.Connection) -> None:
        """Whoever is first does it for all; so the source needs no other program to run."""
        for _ in range(_ROUNDS):
            if not connection.execute("select more from poll_for_events_v1()").fetchall()[0][0]:
                return

    def _hold(self, connection: psycopg.Connection) -> int:
        query = "select hold_group_v1(%s, %s)"
        (epoch,) = connection.execute(query, [self._options.group, self._options.reader]).fetchall()[0]
        if epoch is None:
            raise _another_reader(self._options.group)
        return int(epoch)

    @contextmanager
    def _session(self) -> Iterator[psycopg.Connection]:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(
                    self._options.url,
                    autocommit=True,
                    application_name="headgate broker",
                    options=f"-c search_path={self._options.schema},pg_temp",
                )
            yield self._connection
        except psycopg.Error as error:
            self.close()
            raise _ours(error, self._options) from None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_connection": None}


def _fetch(connection: psycopg.Connection, group: str, after: int, end: int) -> pa.Table:
    """The next events, without a Python object for any of them."""
    values = {"group": group, "after": after, "chunk": _CHUNK, "end": end}
    statement = sql.SQL(_EVENTS).format(**{name: sql.Literal(value) for name, value in values.items()})
    data = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for part in copy:
            data.write(part)
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


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    at = rows.column("at").cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    columns = {name: rows.column(name) for name in ("id", "topic", "payload", "metadata")} | {
        "at": at,
        "pos": rows.column("pos"),
        "subscription_ids": pc.split_pattern(rows.column("subscription_ids"), ",").cast(pa.list_(pa.int32())),
        POSITION: pc.utf8_lpad(rows.column("pos").cast(pa.string()), 19, "0"),
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
    return ConnectError(message, where="url", remedy="check that PostgreSQL runs and takes connections")
