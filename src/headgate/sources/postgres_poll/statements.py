"""The poller's SQL. Names are quoted, values are texts that PostgreSQL printed and reads back as their type.

Keys travel as one array of texts for each column, which stays quick for a hundred thousand of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from psycopg import sql

from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import Place
from headgate.sources.postgres_poll.table import PolledTable

__all__ = [
    "SNAPSHOT",
    "Snapshot",
    "count_left",
    "future_rows",
    "last_place",
    "late_rows",
    "next_rows",
    "rows_behind",
    "rows_of",
    "take_away",
]

Columns = Sequence[Sequence[str]]
Bounds = list[sql.Composable]

SNAPSHOT = """
select pg_snapshot_xmin(x)::text::bigint as oldest, pg_snapshot_xmax(x)::text::bigint as next
from pg_current_snapshot() as x
"""
# What clocks say that a tracking column may go by, the earliest and the latest. A time without time zone does not say
# whose it is: it lies in the future when it does so everywhere on Earth.
_WEST, _EAST = "(now() at time zone 'UTC' - interval '12 hours')", "(now() at time zone 'UTC' + interval '14 hours')"
_CLOCKS = {
    "timestamp with time zone": ("now()", "now()"),
    "timestamp without time zone": (_WEST, _EAST),
    "date": (f"{_WEST}::date", f"{_EAST}::date"),
}
_LEAST = {"smallint": -(2**15), "integer": -(2**31), "bigint": -(2**63)}


class Snapshot(NamedTuple):
    """Numbers of transactions: of the oldest that may still run, and of the next to come."""

    oldest: int
    next: int


def next_rows(
    table: PolledTable,
    options: PollOptions,
    snapshot: Snapshot,
    *,
    after: Place | None,
    until: Place | None,
    limit: int | None,
) -> sql.Composed:
    """Rows behind a place."""
    bounds = _behind(table, options, after)
    bounds += [_compared(table, "<=", until)] if until else []
    return _rows(table, options, snapshot, bounds, limit)


def _behind(table: PolledTable, options: PollOptions, after: Place | None) -> Bounds:
    bounds: Bounds = [_compared(table, ">", after)] if after else []
    if (clocks := _clocks(table)) and options.future_rows == "wait" and not options.is_destructive:
        bounds.append(sql.SQL("{} <= {}").format(_tracking(table), clocks[1]))
    return bounds


def rows_behind(table: PolledTable, options: PollOptions, after: Place | None, most: int) -> sql.Composed:
    """How many rows are to be read behind a place, up to `most`, and how old the first is if its column says so."""
    tracking = _tracking(table)
    rows = sql.SQL("select {} as at from {} as t where {} order by 1 limit {}").format(
        tracking,
        _name(table),
        sql.SQL(" and ").join(
            [sql.SQL("{} is not null").format(tracking), *_behind(table, options, after), *_wanted(options)]
        ),
        most,
    )
    is_instant = re.sub(r"\(\d\)", "", table.tracking.type) == "timestamp with time zone"
    age = sql.SQL("extract(epoch from now() - min(at))::float8" if is_instant else "null::float8")
    return sql.SQL("select count(*) as rows, {} as seconds from ({}) as f").format(age, rows)


def late_rows(
    table: PolledTable,
    options: PollOptions,
    snapshot: Snapshot,
    *,
    seen: int,
    until: int,
    after: Place | None,
    end: Place,
    limit: int | None,
) -> sql.Composed:
    """Rows up to `end` whose transactions were not over when rows up to there were read, as far back as is looked."""
    bounds = [_compared(table, "<=", end), _is_among(seen, until), _is_near(table, options, end)]
    bounds += [_compared(table, ">", after)] if after else []
    return _rows(table, options, snapshot, bounds, limit)


def future_rows(table: PolledTable, options: PollOptions, cursor: Place | None, most: int) -> sql.Composed | None:
    """How many rows are dated after the clock, the last of them, and whether the cursor is; None without a clock."""
    clocks = _clocks(table)
    if clocks is None:
        return None
    clock = clocks[1]
    ahead = (
        sql.SQL("{} > {}").format(_cast(sql.Literal(cursor.tracking), table.tracking.type), clock)
        if cursor
        else sql.SQL("false")
    )
    ahead_rows = sql.SQL("select {} as at from {} as t where {} order by 1 limit {}").format(
        _tracking(table),
        _name(table),
        sql.SQL(" and ").join([sql.SQL("{} > {}").format(_tracking(table), clock), *_wanted(options)]),
        most,
    )
    return sql.SQL("select count(*) as rows, coalesce(max(at)::text, '') as last, {} as ahead from ({}) as f").format(
        ahead, ahead_rows
    )


def _rows(
    table: PolledTable, options: PollOptions, snapshot: Snapshot, bounds: Bounds, limit: int | None
) -> sql.Composed:
    """Tracking value, key, and whether the row is unsettled, in order, as CSV.

    A row is unsettled if its transaction is not older than every running one: one that began to write before it may
    still commit a row that belongs before it.
    """
    order = [table.tracking, *table.key]
    parts = [sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in order]
    return sql.SQL("copy (select {}, {} from {} as t where {} order by {}{}) to stdout (format csv)").format(
        sql.SQL(", ").join(sql.SQL("{}::text").format(part) for part in parts),
        _is_among(snapshot.oldest, snapshot.next),
        _name(table),
        sql.SQL(" and ").join([sql.SQL("{} is not null").format(parts[0]), *bounds, *_wanted(options)]),
        sql.SQL(", ").join(parts),
        sql.SQL(" limit {}").format(limit) if limit is not None else sql.SQL(""),
    )


def _wanted(options: PollOptions) -> Bounds:
    bounds: Bounds = [sql.SQL("({})").format(sql.SQL(options.filter))] if options.filter else []
    if options.processed_column:
        bounds.append(sql.SQL("t.{} is not true").format(sql.Identifier(options.processed_column)))
    return bounds


def _is_among(first: int, end: int) -> sql.Composable:
    """Whether a row's transaction lies between two. `xmin` has 32 bits of the 64, so their distance is what counts."""
    if end <= first:
        return sql.SQL("false")
    return sql.SQL("((t.xmin::text::bigint - {}) & 4294967295) < {}").format(first, end - first)


def _is_near(table: PolledTable, options: PollOptions, end: Place) -> sql.Composable:
    """Not further back than the overlap; of types that have none, rows with the same tracking value."""
    type_, value = table.tracking.type, sql.Literal(end.tracking)
    if (clocks := _clocks(table)) is not None:
        bound = sql.SQL("(least({}, {}) - {})").format(
            _cast(value, type_), clocks[0], sql.SQL("{}::interval").format(f"{options.overlap_ms} milliseconds")
        )
        return sql.SQL("{} >= {}").format(_tracking(table), _cast(bound, type_))
    if type_ in _LEAST:
        value = sql.Literal(str(max(_LEAST[type_], int(end.tracking) - options.overlap_values)))
    return sql.SQL("{} >= {}").format(_tracking(table), _cast(value, type_))


def _clocks(table: PolledTable) -> tuple[sql.SQL, sql.SQL] | None:
    """What the tracking column may call now; None if it is not of time. `timestamp(3)` is one, too."""
    found = _CLOCKS.get(re.sub(r"\(\d\)", "", table.tracking.type))
    return (sql.SQL(found[0]), sql.SQL(found[1])) if found else None


def _tracking(table: PolledTable) -> sql.Composed:
    return sql.SQL("t.{}").format(sql.Identifier(table.tracking.name))


def last_place(table: PolledTable) -> sql.Composed:
    """The last row of the order now."""
    parts = [sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in (table.tracking, *table.key)]
    return sql.SQL("select {} from {} as t where {} is not null order by {} limit 1").format(
        sql.SQL(", ").join(
            sql.SQL("{}::text as {}").format(part, sql.Identifier(f"c{i}")) for i, part in enumerate(parts)
        ),
        _name(table),
        parts[0],
        sql.SQL(", ").join(sql.SQL("{} desc").format(part) for part in parts),
    )


def rows_of(table: PolledTable, first: int, keys: Columns) -> sql.Composed:
    """The rows with these keys, numbered from `first`, in order, as COPY's text."""
    own = table.relation.columns[:-1]
    columns = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in own)
    return sql.SQL("copy (select {}, {} + k.place - 1 from {} join {} as t on {} order by k.place) to stdout").format(
        columns, first, _keys(keys), _name(table), _is_key(table)
    )


def take_away(table: PolledTable, processed_column: str, planned: Columns) -> sql.Composed:
    """Deletes or marks rows that are still as they were planned: tracking values, then keys."""
    name, keys, match = _name(table), _keys(planned), _is_planned(table)
    if processed_column:
        return sql.SQL("update {} as t set {} = true from {} where {}").format(
            name, sql.Identifier(processed_column), keys, match
        )
    return sql.SQL("delete from {} as t using {} where {}").format(name, keys, match)


def count_left(table: PolledTable, processed_column: str, planned: Columns) -> sql.Composed:
    """How many of them are still there."""
    unmarked = sql.SQL(" and t.{} is not true").format(sql.Identifier(processed_column))
    return sql.SQL("select count(*) as rows from {} join {} as t on {}{}").format(
        _keys(planned), _name(table), _is_planned(table), unmarked if processed_column else sql.SQL("")
    )


def _name(table: PolledTable) -> sql.Identifier:
    return sql.Identifier(table.typed.schema, table.typed.name)


def _compared(table: PolledTable, operator: str, place: Place) -> sql.Composed:
    order = [table.tracking, *table.key]
    names = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in order)
    values = sql.SQL(", ").join(
        _cast(sql.Literal(value), column.type)
        for value, column in zip([place.tracking, *place.key], order, strict=True)
    )
    return sql.SQL("({}) {} ({})").format(names, sql.SQL(operator), values)


def _keys(columns: Columns) -> sql.Composed:
    """Rows of texts: columns c0, c1, ... and `place`, which counts from 1. Literals, since COPY takes no parameters."""
    return sql.SQL("unnest({}) with ordinality as k ({}, place)").format(
        sql.SQL(", ").join(sql.SQL("{}::text[]").format(sql.Literal(list(each))) for each in columns),
        sql.SQL(", ").join(sql.Identifier(f"c{i}") for i in range(len(columns))),
    )


def _is_key(table: PolledTable, first: int = 0) -> sql.Composed:
    return sql.SQL(" and ").join(
        sql.SQL("t.{} = {}").format(sql.Identifier(part.name), _cast(sql.Identifier("k", f"c{i}"), part.type))
        for i, part in enumerate(table.key, start=first)
    )


def _is_planned(table: PolledTable) -> sql.Composed:
    """A row that was changed since has another tracking value, and comes again by itself."""
    tracking = _cast(sql.Identifier("k", "c0"), table.tracking.type)
    same = sql.SQL("t.{} = {}").format(sql.Identifier(table.tracking.name), tracking)
    return sql.SQL("{} and {}").format(_is_key(table, first=1), same)


def _cast(value: sql.Composable, type_: str) -> sql.Composed:
    # The server wrote the type's name.
    return sql.SQL("{}::{}").format(value, sql.SQL(type_))
