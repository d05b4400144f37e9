"""A folded stream beside the real tables, value by value.

The server's side is read with its own output functions (a cast to text would print booleans, `char(n)` and `inet`
in another way than the replication stream does) and goes through the same codecs as the stream. Values are equal if
Python prints them alike: NaN equals itself, -0.0 is not 0.0, and 1, 1.0 and True differ.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from psycopg import sql

from headgate.wire.pgtypes import Codec, TypeCatalog
from tests.cdc.catalog import pin_session, published_columns, read_types
from tests.cdc.fold import Fold, KeyedRows, Row, RowBag, TableName
from tests.cdc.shop import Connection

__all__ = ["Form", "compare", "read_rows"]

_ABSENT = object()


class Form(enum.Enum):
    """How the events were encoded: their values differ, in JSON there are no bytes and no NaN."""

    MESSAGE_PACK = "messagepack"
    JSON = "json"


def compare(fold: Fold, connection: Connection, form: Form = Form.MESSAGE_PACK, *, limit: int = 5) -> list[str]:
    """What differs, in readable lines, at most `limit` rows of each table; nothing if all is equal.

    All tables are read in one snapshot. The connection must not be inside a transaction.
    """
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read")
        pin_session(connection)
        types = read_types(connection)
        return [line for name in fold.tables for line in _compare_table(fold, connection, name, types, form, limit)]


def read_rows(connection: Connection, name: TableName, types: TypeCatalog, form: Form) -> Iterator[Row]:
    """The rows of a table as events would carry them. The session must be pinned."""
    columns = published_columns(connection, name)
    codecs = [types.codec(type_id) for _, type_id in columns]
    query = sql.SQL("select {} from {}").format(
        sql.SQL(", ").join(sql.Identifier(column) for column, _ in columns), sql.Identifier(*name)
    )
    result = connection.execute(query).pgresult
    assert result is not None
    for row in range(result.ntuples):
        yield {
            column: _value(codec, result.get_value(row, number), form)
            for number, ((column, _), codec) in enumerate(zip(columns, codecs, strict=True))
        }


def _value(codec: Codec, text: bytes | None, form: Form) -> Any:
    if text is None:
        return None
    return codec.decode(text.decode()) if form is Form.MESSAGE_PACK else json.loads(codec.json(text.decode()))


def _compare_table(
    fold: Fold, connection: Connection, name: TableName, types: TypeCatalog, form: Form, limit: int
) -> list[str]:
    folded = fold.tables[name]
    actual = read_rows(connection, name, types, form)
    if isinstance(folded, KeyedRows):
        lines = list(_keyed(folded, actual))
    else:
        assert isinstance(folded, RowBag)
        lines = list(_bags(folded, actual))
    title = f"{name[0]!r}.{name[1]!r}"
    left_out = [f"{title}: and {len(lines) - limit} more"] if len(lines) > limit else []
    return [f"{title}: {line}" for line in lines[:limit]] + left_out


def _keyed(folded: KeyedRows, actual: Iterable[Row]) -> Iterator[str]:
    expected = {folded.key_of(row): row for row in actual}
    for key, row in expected.items():
        if key not in folded.rows:
            yield f"row {key!r} is missing in the stream: {_short(row)}"
        elif differing := _differences(folded.rows[key], row):
            yield f"row {key!r}: {differing}"
    for key, row in folded.rows.items():
        if key not in expected:
            yield f"row {key!r} is in the stream only: {_short(row)}"


def _bags(folded: RowBag, actual: Iterable[Row]) -> Iterator[str]:
    expected = RowBag()
    for row in actual:
        expected.insert(row)
    for text in expected.counts.keys() | folded.counts.keys():
        there, here = expected.counts[text], folded.counts[text]
        if there != here:
            row = expected.rows.get(text) or folded.rows[text]
            yield f"{there} times in the table, {here} times in the stream: {_short(row)}"


def _differences(streamed: Row, actual: Row) -> str:
    names = [*actual, *(name for name in streamed if name not in actual)]
    return "; ".join(
        f"{name!r} is {_shown(actual, name)} in the table, {_shown(streamed, name)} in the stream"
        for name in names
        if repr(streamed.get(name, _ABSENT)) != repr(actual.get(name, _ABSENT))
    )


def _shown(row: Mapping[str, Any], name: str) -> str:
    return _abridged(row[name]) if name in row else "absent"


def _short(row: Row) -> str:
    return "{" + ", ".join(f"{name!r}: {_abridged(value)}" for name, value in row.items()) + "}"


def _abridged(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}... ({len(text)} characters)"
