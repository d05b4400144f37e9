"""Where a replica lives: the contract, and what the SQL targets have in common.

A target keeps tables of the source, and beside them `_headgate_replica`: the position, the shape of each table that it
made, and whose turn it is to write. Position and rows change in the same transaction, so whatever kills the process,
both say the same. A snapshot is loaded into a table of another name, which takes the real one's place at the end.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import msgspec

from headgate.consume import Column, Schema, TableName
from headgate.model import DataError, HeadgateError, ProtocolError, StateError
from headgate.replica.fold import Fold, Item, Move, Reshape, Row

__all__ = ["BOOK", "TableFailed", "Target", "quoted"]

BOOK = "_headgate_replica"


class TableFailed(Exception):  # noqa: N818 - a fact about one table; the replica acts on it
    """The target cannot take a value or a shape of a table. The error's own words may show values of rows."""

    def __init__(self, table: TableName, error: Exception) -> None:
        super().__init__(table, error)
        self.table = table
        code = getattr(error, "sqlstate", None)
        if isinstance(error, HeadgateError):
            self.reason = str(error)
        else:
            self.reason = f"the target cannot take its values ({type(error).__name__}{f', {code}' if code else ''})"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Target(ABC):
    """One replica. All methods are called from one thread at a time; `begin` .. `commit` is one transaction."""

    mark = "?"  # stands for a value in SQL
    # What a value or a shape that the target cannot take raises; anything else concerns more than one table.
    data_errors: tuple[type[Exception], ...] = (DataError, ProtocolError, TypeError, ValueError, ArithmeticError)

    def __init__(self) -> None:
        self._owner = uuid4().hex

    # What a kind of target has to say.

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def place(self, table: TableName) -> tuple[str, ...]:
        """The table's name here, in one or two parts."""

    @abstractmethod
    def exists(self, place: tuple[str, ...]) -> bool: ...

    @abstractmethod
    def type_of(self, column: Column) -> str: ...

    @abstractmethod
    def insert(self, place: tuple[str, ...], schema: Schema, rows: Sequence[Row]) -> None:
        """Rows that are new."""

    @abstractmethod
    def put(self, schema: Schema, rows: Sequence[Row]) -> None:
        """Rows in the place of those with the same key."""

    @abstractmethod
    def delete(self, schema: Schema, keys: Sequence[Row]) -> None: ...

    @abstractmethod
    def patch(self, schema: Schema, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Set some columns: rows have their values, then the key."""

    @abstractmethod
    def remove(self, schema: Schema, rows: Sequence[tuple[Row, int]]) -> None:
        """Of each row as many equal ones as the number says. Rows are different from each other."""

    @abstractmethod
    def clear_way(self, schema: Schema, old_key: Row, new_key: Row) -> None:
        """If there is a row with the old key, delete one with the new key: a `watermark` snapshot may hold both."""

    @abstractmethod
    def rows(self, schema: Schema) -> Iterator[Row]:
        """All of a table, as values of the wire; those of the form TREE as JSON text."""

    key_clause = True  # whether tables get a primary key

    # What all have in common.

    def claim(self) -> None:
        """From here on this process writes; one that wrote before finds out at its next commit."""
        self.begin()
        self.execute(f"create table if not exists {BOOK} (name varchar(300) primary key, value text not null)")
        self._write("owner", self._owner)
        self.commit()

    def load(self) -> tuple[dict[str, Any] | None, dict[TableName, Schema]]:
        """The position and the tables that are here; nothing where no replica ever was."""
        if not self.exists(self.place_of_book()):
            return None, {}
        found = {str(name): str(value) for name, value in self.execute(f"select name, value from {BOOK}")}
        position = found.get("position")
        schemas = [Schema.read(text.encode()) for name, text in found.items() if name.startswith("table:")]
        return None if position is None else json.loads(position), {schema.name: schema for schema in schemas}

    def place_of_book(self) -> tuple[str, ...]:
        return (BOOK,)

    def save(self, position: dict[str, Any]) -> None:
        """In the transaction that brings what the position counts."""
        [[owner]] = self.execute(f"select value from {BOOK} where name = 'owner'")
        if owner != self._owner:
            raise StateError(
                "another process writes this replica now", where=BOOK, remedy="let one `headgate replica run` do it"
            )
        self._write("position", json.dumps(position))

    def begin_snapshot(self, schema: Schema) -> None:
        """An empty table for its rows."""
        self._refuse_foreign(schema.name)
        self.begin()
        place = self.staging(schema.name)
        with self.about(schema):
            self._ready_schema(place)
            self.execute(f"drop table if exists {dotted(place)}")
            self._create(place, schema)
        self.commit()

    def add_rows(self, schema: Schema, rows: Sequence[Row]) -> None:
        self.begin()
        with self.about(schema):
            self.insert(self.staging(schema.name), schema, rows)
        self.commit()

    def finish_snapshot(self, schema: Schema) -> None:
        """The new rows take the place of the old ones; in a transaction of the caller's."""
        place = self.place(schema.name)
        self.execute(f"drop table if exists {dotted(place)}")
        self.execute(f"alter table {dotted(self.staging(schema.name))} rename to {quoted(place[-1])}")
        self._remember(schema)
        for mark in ("gone", "aside"):
            self.execute(f"delete from {BOOK} where name = {self.mark}", [f"{mark}:{schema.name.key}"])

    def note_gone(self, table: TableName) -> None:
        """The source publishes it no more; in a transaction of the caller's."""
        self._write(f"gone:{table.key}", json.dumps(table))

    def drop_table(self, table: TableName) -> None:
        """And remember that it is gone; in a transaction of the caller's."""
        self.execute(f"drop table if exists {dotted(self.place(table))}")
        self.execute(f"delete from {BOOK} where name = {self.mark}", [f"table:{table.key}"])
        self.note_gone(table)

    def gone(self) -> set[TableName]:
        """Tables that the source publishes no more, whether they are here or not."""
        if not self.exists(self.place_of_book()):
            return set()
        found = self.execute(f"select name, value from {BOOK}")
        return {TableName(*json.loads(value)) for name, value in found if str(name).startswith("gone:")}

    def apply(self, items: Sequence[Item]) -> None:
        """In a transaction of the caller's."""
        for item in items:
            with self.about(item.new if isinstance(item, Reshape) else item.schema):
                self._apply_item(item)

    @contextmanager
    def about(self, schema: Schema) -> Iterator[None]:
        """What goes wrong in here because of a value or a shape is the fault of one table."""
        try:
            yield
        except self.data_errors as error:
            raise TableFailed(schema.name, error) from error

    def _apply_item(self, item: Item) -> None:
        if isinstance(item, Fold):
            self._apply_fold(item)
        elif isinstance(item, Move):
            self.clear_way(item.schema, item.old_key, tuple(item.values[name] for name in item.schema.row_key))
            self.patch(item.schema, list(item.values), [(*item.values.values(), *item.old_key)])
        else:
            self._reshape(item)

    def set_aside(self, table: TableName, reason: str) -> None:
        """Remember why a table is not kept up to date; in a transaction of the caller's."""
        self._write(f"aside:{table.key}", json.dumps([*table, reason]))

    def aside(self) -> dict[TableName, str]:
        """Tables that are not kept up to date, with the reason."""
        if not self.exists(self.place_of_book()):
            return {}
        texts = [value for name, value in self.execute(f"select name, value from {BOOK}") if name.startswith("aside:")]
        return {TableName(schema, table): reason for schema, table, reason in map(json.loads, texts)}

    def count(self, schema: Schema) -> int:
        [[count]] = self.execute(f"select count(*) from {dotted(self.place(schema.name))}")
        return int(count)

    def staging(self, table: TableName) -> tuple[str, ...]:
        digest = hashlib.sha256(table.key.encode()).hexdigest()[:12]
        return (*self.place(table)[:-1], f"_headgate_new_{digest}")

    def _apply_fold(self, fold: Fold) -> None:
        schema = fold.schema
        if fold.is_truncated:
            self.execute(f"delete from {dotted(self.place(schema.name))}")
        if fold.key:
            if deletes := fold.deletes:
                self.delete(schema, deletes)
            for columns, rows in fold.patches.items():
                if len(columns) > 0:
                    self.patch(schema, columns, rows)
            if puts := fold.puts:
                self.put(schema, puts)
            return
        if removed := fold.removed:
            self.remove(schema, removed)
        if added := fold.added:
            self.insert(self.place(schema.name), schema, added)

    def _reshape(self, item: Reshape) -> None:
        old = {column.name for column in item.old.sent}
        new = {column.name for column in item.new.sent}
        table = dotted(self.place(item.new.name))
        for column in item.new.sent:
            if column.name not in old:
                self.execute(f"alter table {table} add column {quoted(column.name)} {self.type_of(column)}")
        for name in sorted(old - new):
            self.execute(f"alter table {table} drop column {quoted(name)}")
        self._remember(item.new)

    def _create(self, place: tuple[str, ...], schema: Schema) -> None:
        parts = [f"{quoted(column.name)} {self.type_of(column)}".rstrip() for column in schema.sent]
        if schema.row_key and self.key_clause:
            parts.append(f"primary key ({', '.join(map(quoted, schema.row_key))})")
        self.execute(f"create table {dotted(place)} ({', '.join(parts)})")

    def _remember(self, schema: Schema) -> None:
        self._write(f"table:{schema.name.key}", msgspec.json.encode(schema).decode())

    def _write(self, name: str, value: str) -> None:
        self.execute(f"delete from {BOOK} where name = {self.mark}", [name])
        self.execute(f"insert into {BOOK} values ({self.mark}, {self.mark})", [name, value])

    def _ready_schema(self, place: tuple[str, ...]) -> None:
        if len(place) > 1:
            self.execute(f"create schema if not exists {quoted(place[0])}")

    def _refuse_foreign(self, table: TableName) -> None:
        """A replica never overwrites what it did not make: the target might be the source itself."""
        _, schemas = self.load()
        if table not in schemas and self.exists(self.place(table)):
            raise StateError(
                f"{dotted(self.place(table))} exists already, and no replica made it",
                where="target",
                remedy="choose another target, or drop that table yourself",
            )


def dotted(place: tuple[str, ...]) -> str:
    return ".".join(map(quoted, place))
