"""Plans batches and commits them: everything the source does but reading rows.

Without destructive steps a batch begins behind the last row of the batch before, and ends before the first row that
is not settled. A row that comes late, before rows that were read, is known by its transaction, and makes a batch with
its like. With them it begins with the first row that is there, since what was delivered is gone or marked: no
row can be missed, whatever its tracking value. That is right because a batch is only planned once all batches before
it are committed.
"""

from __future__ import annotations

import io
import logging
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.model import AuthError, StateError
from headgate.sources.base import Lag
from headgate.sources.postgres_poll.connections import Connection, connected
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import TRACKING, Future, Place, Plan, PlanBook, Point
from headgate.sources.postgres_poll.statements import (
    SNAPSHOT,
    Snapshot,
    count_left,
    future_rows,
    last_place,
    late_rows,
    next_rows,
    rows_behind,
    take_away,
)
from headgate.sources.postgres_poll.table import PolledTable, describe

__all__ = ["Last", "Poller"]

_log = logging.getLogger(__name__)

_UNSETTLED = "unsettled"
_ONE_SNAPSHOT = "set transaction isolation level repeatable read, read only"
_FUTURE_COUNTED = 1000  # rows in the future are not counted beyond this
_LAG_COUNTED = 100_000  # nor are rows that wait to be read
# Somebody who holds a delivered row for long must not hold the pipeline: it tries again.
_WAIT_FOR_LOCKS = "set local lock_timeout = '10s'"


class Last(NamedTuple):
    """Where a table ends, and the oldest transaction that may still write to it."""

    place: Place
    oldest: int


class Poller:
    """One polled table, on the driver's machine."""

    def __init__(self, options: PollOptions, table: PolledTable | None = None) -> None:
        self._options = options
        self._given = table
        self.book = PlanBook(options.book_dir)
        self.rows_kept = 0  # rows that were changed or deleted by others before their commit

    @cached_property
    def table(self) -> PolledTable:
        return self._given or describe(self._options)

    def check(self) -> None:
        """Ask for the last row, and whether rows may be taken away."""
        self.last()
        options, table = self._options, self.table
        if not options.is_destructive:
            return
        right = "delete" if options.delete_after_read else "update"
        where = sql.Identifier(table.typed.schema, table.typed.name).as_string(None)
        if options.delete_after_read:
            query, values = "select has_table_privilege(%s, 'delete')", [where]
        else:
            query, values = "select has_column_privilege(%s, %s, 'update')", [where, options.processed_column]
        with connected(options.url, table.where) as connection:
            (row,) = connection.execute(query, values).fetchall()
        if not all(row.values()):
            raise AuthError(f"rows may not be taken away: no {right} on {where}", remedy=f"GRANT {right} ON {where}")

    def last(self) -> Last | None:
        """Where the table ends now; None if it is empty."""
        with connected(self._options.url, self.table.where) as connection:
            snapshot = _snapshot(connection)
            row = connection.execute(last_place(self.table)).fetchone()
        if row is None:
            return None
        tracking, *key = row.values()
        return Last(Place(tracking, tuple(key)), snapshot.oldest)

    def lag(self, delivered: Point | None) -> Lag:
        """What is there behind the delivered rows; late ones are not counted before they are found."""
        after = delivered.after if delivered and not self._options.is_destructive else None
        statement = rows_behind(self.table, self._options, after, _LAG_COUNTED)
        with connected(self._options.url, self.table.where) as connection:
            (row,) = connection.execute(statement).fetchall()
        return Lag(rows=row["rows"], seconds=max(0.0, row["seconds"]) if row["seconds"] is not None else None)

    def plan(self, start: Point, limit: int | None, until: Last | None = None) -> Plan | None:
        """The batch that begins here, decided for good; None while there is nothing to read."""
        known = self.book.at(start)
        if known is not None:
            return known
        with connected(self._options.url, self.table.where) as connection, connection.transaction():
            connection.execute(_ONE_SNAPSHOT)
            if self._options.is_destructive:
                plan = self._all_there(connection, start, limit, until)
            else:
                plan = self._settled(connection, start, limit, until)
        if plan is not None:
            self.book.add(plan)
        return plan

    def _all_there(self, connection: Connection, start: Point, limit: int | None, until: Last | None) -> Plan | None:
        end = until.place if until else None
        settled = Snapshot(0, 0)  # what was delivered is gone, so it does not matter who may still come
        rows = self._find(connection, next_rows(self.table, self._options, settled, after=None, until=end, limit=limit))
        return Plan.new_rows(start, rows) if rows.num_rows else None

    def _settled(self, connection: Connection, start: Point, limit: int | None, until: Last | None) -> Plan | None:
        snapshot = _snapshot(connection)
        if until:  # a run that ends takes what was settled when it began
            snapshot = snapshot._replace(oldest=min(snapshot.oldest, until.oldest))
        late = self._late(connection, start, limit, snapshot)
        if late is not None:
            return late
        statement = next_rows(
            self.table,
            self._options,
            snapshot,
            after=start.after,
            until=until.place if until else None,
            limit=limit,
        )
        rows = self._find(connection, statement)
        if rows.num_rows:
            return Plan.new_rows(start, rows, snapshot.oldest)
        self._look_ahead(connection, start.after)
        return None

    def _late(self, connection: Connection, start: Point, limit: int | None, snapshot: Snapshot) -> Plan | None:
        """Rows that belong before what is read: their transactions were not over, or had not begun to write, then."""
        if start.after is None or start.seen is None or start.seen > snapshot.next:
            return None  # nothing is read, nobody knows, or these are numbers of another server
        rest, seen = start.late, start.seen
        if rest is not None:
            plan = self._late_between(connection, start, limit, snapshot, (seen, rest.until), rest.after)
            if plan is not None:
                return plan
            seen = rest.until
        return self._late_between(connection, start, limit, snapshot, (seen, snapshot.oldest))

    def _late_between(
        self,
        connection: Connection,
        start: Point,
        limit: int | None,
        snapshot: Snapshot,
        transactions: tuple[int, int],
        after: Place | None = None,
    ) -> Plan | None:
        assert start.after is not None
        seen, until = transactions
        statement = late_rows(
            self.table, self._options, snapshot, seen=seen, until=until, after=after, end=start.after, limit=limit
        )
        rows = self._find(connection, statement)
        if not rows.num_rows:
            return None
        return Plan.late_rows(start, rows, seen, until, are_all=limit is None or rows.num_rows < limit)

    def _look_ahead(self, connection: Connection, cursor: Place | None) -> None:
        """Rows dated after the server's clock wait; somebody should know, as such a date is mostly a mistake."""
        statement = future_rows(self.table, self._options, cursor, _FUTURE_COUNTED)
        row = connection.execute(statement).fetchone() if statement else None
        if row is None:
            return
        found = Future(row["rows"], row["last"], row["ahead"])
        if self.book.note_future(found) and (found.rows or found.cursor_is_ahead):
            _log.warning("rows are dated in the future", extra={"table": self.table.where, **found._asdict()})

    def planned(self, start: Point, end: Point) -> Plan | None:
        """The plan of a batch that Spark has logged; None if it is committed, so that nobody needs its rows."""
        plan = self.book.at(start)
        if plan is not None and plan.end == end:
            return plan
        if end.row <= self.book.committed:
            return None
        raise StateError(
            "the plan of a batch that was begun is missing, so nobody knows which rows it had",
            where=str(self._options.directory),
            remedy="restore the directory, or start anew with: headgate reset PIPELINE",
        )

    def commit(self, end: Point) -> None:
        """Take away the rows of every batch up to here, then forget their plans. Doing it again does no harm."""
        if self._options.is_destructive:
            for plan in self.book.through(end.row):
                self._take_away(plan)
        self.book.forget(end.row)

    def _find(self, connection: Connection, statement: sql.Composed) -> pa.Table:
        """The rows of a statement up to the first that is not settled."""
        with connection.cursor().copy(statement) as copy:
            text = b"".join(copy)
        keys = [f"key{i}" for i in range(len(self.table.key))]
        rows = _parse(text, [TRACKING, *keys])
        first = pc.index(rows[_UNSETTLED], "t").as_py()
        rows = rows.slice(0, first) if first >= 0 else rows
        return rows.drop_columns([_UNSETTLED]).combine_chunks()

    def _take_away(self, plan: Plan) -> None:
        values = [column.to_pylist() for column in plan.rows.columns]
        column = self._options.processed_column
        with connected(self._options.url, self.table.where) as connection, connection.transaction():
            connection.execute(_WAIT_FOR_LOCKS)
            taken = connection.execute(take_away(self.table, column, values)).rowcount
            row = connection.execute(count_left(self.table, column, values)).fetchone()
            if row is not None and row["rows"]:
                raise StateError(
                    f"{row['rows']} delivered rows are still there after they were taken away",
                    where=self.table.where,
                    remedy="a trigger or a rule keeps them; remove it, or read without destructive steps",
                )
        kept = plan.rows.num_rows - taken
        if kept:
            self.rows_kept += kept
            _log.info(
                "delivered rows were changed or deleted by others", extra={"table": self.table.where, "rows": kept}
            )


def _snapshot(connection: Connection) -> Snapshot:
    (row,) = connection.execute(SNAPSHOT).fetchall()
    return Snapshot(row["oldest"], row["next"])


def _parse(text: bytes, names: list[str]) -> pa.Table:
    names = [*names, _UNSETTLED]
    schema = pa.schema([(name, pa.string()) for name in names])
    if not text:
        return schema.empty_table()
    return csv.read_csv(
        io.BytesIO(text),
        csv.ReadOptions(column_names=names, block_size=max(len(text), 1)),
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(column_types=schema, strings_can_be_null=False),
    )
