"""Plans batches and commits them: everything the source does but reading rows.

Without destructive steps a batch begins behind the last row of the batch before, and ends before the first row that
is not settled. With them it begins with the first row that is there, since what was delivered is gone or marked: no
row can be missed, whatever its tracking value. That is right because a batch is only planned once all batches before
it are committed.
"""

from __future__ import annotations

import io
import logging
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from headgate.model import AuthError, StateError
from headgate.sources.postgres_poll.connections import connected
from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import TRACKING, Place, Plan, PlanBook, Point
from headgate.sources.postgres_poll.statements import count_left, last_place, next_rows, take_away
from headgate.sources.postgres_poll.table import PolledTable, describe

__all__ = ["Poller"]

_log = logging.getLogger(__name__)

_UNSETTLED = "unsettled"
# Somebody who holds a delivered row for long must not hold the pipeline: it tries again.
_WAIT_FOR_LOCKS = "set local lock_timeout = '10s'"


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

    def last(self) -> Place | None:
        """The last row of the table's order, now."""
        with connected(self._options.url, self.table.where) as connection:
            row = connection.execute(last_place(self.table)).fetchone()
        if row is None:
            return None
        tracking, *key = row.values()
        return Place(tracking, tuple(key))

    def plan(self, start: Point, limit: int | None, until: Place | None = None) -> Plan | None:
        """The batch that begins here, decided for good; None while there is nothing to read."""
        known = self.book.at(start)
        if known is not None:
            return known
        rows = self._find(None if self._options.is_destructive else start.after, limit, until)
        if not rows.num_rows:
            return None
        plan = Plan(start, rows)
        self.book.add(plan)
        return plan

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

    def _find(self, after: Place | None, limit: int | None, until: Place | None) -> pa.Table:
        statement = next_rows(self.table, self._options, after, until, limit)
        with connected(self._options.url, self.table.where) as connection, connection.cursor().copy(statement) as copy:
            text = b"".join(copy)
        keys = [f"key{i}" for i in range(len(self.table.key))]
        rows = _parse(text, [TRACKING, *keys])
        if not self._options.is_destructive:
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
