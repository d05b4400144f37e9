"""The poller's SQL. Names are quoted, values are texts that PostgreSQL printed and reads back as their type.

Keys travel as one array of texts for each column, which stays quick for a hundred thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from headgate.sources.postgres_poll.options import PollOptions
from headgate.sources.postgres_poll.plans import Place
from headgate.sources.postgres_poll.table import PolledTable

__all__ = ["count_left", "last_place", "next_rows", "rows_of", "take_away"]

Columns = Sequence[Sequence[str]]

# A row of a transaction that is not older than every running one. It is visible, but a transaction that began to
# write before it may still commit a row that belongs before it. A row's xmin has 32 bits of the 64: what counts is
# whether it lies among the numbers from the oldest running transaction to the next one to come.
_IS_UNSETTLED = "((t.xmin::text::bigint - s.oldest) & 4294967295) < s.next - s.oldest"
_SNAPSHOT = """(select pg_snapshot_xmin(x)::text::bigint as oldest, pg_snapshot_xmax(x)::text::bigint as next
                from pg_current_snapshot() as x) as s"""


def next_rows(
    table: PolledTable, options: PollOptions, after: Place | None, until: Place | None, limit: int | None
) -> sql.Composed:
    """Tracking value, key, and whether the row is unsettled, in order, as CSV."""
    order = [table.tracking, *table.key]
    parts = [sql.SQL("t.{}").format(sql.Identifier(column.name)) for column in order]
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(part) for part in parts)
    bounds: list[sql.Composable] = [sql.SQL("{} is not null").format(parts[0])]
    bounds += [_compared(table, ">", after)] if after else []
    bounds += [_compared(table, "<=", until)] if until else []
    bounds += [sql.SQL("({})").format(sql.SQL(options.filter))] if options.filter else []
    if options.processed_column:
        bounds.append(sql.SQL("t.{} is not true").format(sql.Identifier(options.processed_column)))
    return sql.SQL("copy (select {}, {} from {} as t, {} where {} order by {}{}) to stdout (format csv)").format(
        texts,
        sql.SQL(_IS_UNSETTLED),
        _name(table),
        sql.SQL(_SNAPSHOT),
        sql.SQL(" and ").join(bounds),
        sql.SQL(", ").join(parts),
        sql.SQL(" limit {}").format(limit) if limit is not None else sql.SQL(""),
    )


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
