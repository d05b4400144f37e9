"""Many changes -> what they come to: for each key one row to put, one to patch or one to delete.

Between two commits of the target nobody sees what lies between, so only the outcome of each key is written, in bulk.
What cannot be folded stays in order as an item of its own. A table without a key is a bag of rows: what is added
and what is removed, after both were set against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec

from headgate.consume import Change, Schema, TableName
from headgate.model import ProtocolError

__all__ = ["Fold", "Item", "Move", "Plan", "Reshape"]

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A row gets another key while some of its values were not sent: its old key, and the values that were."""

    schema: Schema
    old_key: Row
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reshape:
    """A table gets another shape."""

    old: Schema
    new: Schema


class Fold:
    """The changes of one table in one shape."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = tuple(column.name for column in schema.sent)
        self.key = schema.row_key
        self.is_truncated = False
        self._full = len(self.names)
        self._effects: dict[Any, tuple[Row, Row | dict[str, Any] | None]] = {}
        self._bag: Counter[bytes] = Counter()
        self._key_of = _getter(self.key)
        self._hashed = (
            _hashed if any(c.kind in ("array", "composite") for c in schema.sent if c.name in self.key) else None
        )

    def feed(self, change: Change) -> Move | None:
        """Take a change in; or give back what must be done by itself, after this fold and before the next."""
        operation = change.operation
        if operation == "TRUNCATE":
            self.is_truncated = True
            self._effects.clear()
            self._bag.clear()
        elif not self.key:
            self._feed_bag(change)
        elif operation == "INSERT":
            self._put(change.data)
        elif operation == "DELETE":
            key = self._key_of(change.data)
            self._effects[self._place(key)] = key, None
        elif operation == "UPDATE":
            return self._update(change)
        return None

    @property
    def deletes(self) -> list[Row]:
        if self.is_truncated:
            return []
        return [key for key, effect in self._effects.values() if effect is None]

    @property
    def puts(self) -> list[Row]:
        return [effect for _, effect in self._effects.values() if type(effect) is tuple]

    @property
    def patches(self) -> dict[tuple[str, ...], list[Row]]:
        """By the columns that are set: their values, and the key behind them."""
        groups: dict[tuple[str, ...], list[Row]] = {}
        for key, effect in self._effects.values():
            if isinstance(effect, dict):
                groups.setdefault(tuple(effect), []).append((*effect.values(), *key))
        return groups

    @property
    def added(self) -> list[Row]:
        """Rows of a table without a key."""
        return [row for packed, count in self._bag.items() for row in [_unpacked(packed)] * count if count > 0]

    @property
    def removed(self) -> list[tuple[Row, int]]:
        if self.is_truncated:
            return []
        return [(_unpacked(packed), -count) for packed, count in self._bag.items() if count < 0]

    def _put(self, data: dict[str, Any]) -> None:
        key = self._key_of(data)
        self._effects[self._place(key)] = key, self._row(data)

    def _row(self, data: dict[str, Any]) -> Row:
        # Values come in the table's order, so that a row with all of them needs no look-up by name.
        if len(data) == self._full:
            return tuple(data.values())
        return tuple(data.get(name) for name in self.names)

    def _update(self, change: Change) -> Move | None:
        data, old = change.data, change.old
        old_key = self._key_of(old) if old is not None else self._key_of(data)
        if len(data) < self._full and old is not None:
            data = {name: data.get(name, old.get(name)) for name in self.names if name in data or name in old}
        place, key = self._place(old_key), self._key_of(data)
        known = self._effects.get(place, (old_key, {}))[1]
        if len(data) < self._full:
            if isinstance(known, tuple):
                data = dict(zip(self.names, known, strict=True)) | data
            elif known is None or (known == {} and self.is_truncated):
                return None  # a row that is not there
            elif key != old_key:
                return Move(self.schema, old_key, {**known, **data})
        if key != old_key:
            self._effects[place] = old_key, None
        if len(data) == self._full:
            self._put({name: data[name] for name in self.names} if data is not change.data else data)
        else:
            assert isinstance(known, dict)
            self._effects[place] = key, {**known, **{n: v for n, v in data.items() if n not in self.key}}
        return None

    def _feed_bag(self, change: Change) -> None:
        if change.operation == "INSERT":
            self._bag[_packed(self._row(change.data))] += 1
        elif change.operation == "DELETE":
            self._bag[_packed(self._row(change.data))] -= 1
        elif change.old is not None:
            self._bag[_packed(self._row(change.old))] -= 1
            self._bag[_packed(self._row({**change.old, **change.data}))] += 1
        else:
            raise ProtocolError(
                "an UPDATE without its old row, of a table without a key",
                where=str(self.schema.name),
                remedy="give the table a primary key, or REPLICA IDENTITY FULL",
            )

    def _place(self, key: Row) -> Any:
        return self._hashed(key) if self._hashed else key


Item: TypeAlias = Fold | Move | Reshape


class Plan:
    """Changes of any tables, in order, as items to be done in order. Items of different tables do not meet."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.change_count = 0
        self._open: dict[TableName, Fold] = {}

    def add(self, schema: Schema, change: Change) -> None:
        name = schema.name
        fold = self._open.get(name)
        if fold is None:
            fold = self._open[name] = Fold(schema)
            self.items.append(fold)
        self.change_count += 1
        move = fold.feed(change)
        if move is not None:
            self._add_alone(name, move)

    def reshape(self, old: Schema, new: Schema) -> None:
        self._add_alone(old.name, Reshape(old, new))

    def _add_alone(self, name: TableName, item: Move | Reshape) -> None:
        self._open.pop(name, None)
        self.items.append(item)


def _getter(names: Iterable[str]) -> Callable[[dict[str, Any]], Row]:
    keys = tuple(names)
    if len(keys) == 1:
        [only] = keys
        return lambda data: (data[only],)
    return itemgetter(*keys) if keys else lambda data: ()


def _hashed(key: Row) -> Any:
    return msgspec.msgpack.encode(key)


def _packed(row: Row) -> bytes:
    return msgspec.msgpack.encode(row)


def _unpacked(packed: bytes) -> Row:
    return tuple(msgspec.msgpack.decode(packed))
