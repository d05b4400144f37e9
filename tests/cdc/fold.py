"""Folds a stream of events into the tables they describe, and trusts none of them.

    fold = Fold(identities(connection, publication))
    for message in messages:
        fold.feed(msgspec.msgpack.decode(message))
    assert compare(fold, connection) == []

Every event is checked against the ones before it: a `FoldError` says which rule the stream breaks, and where.

- No message id comes twice; positions rise; a message id is its position.
- A transaction's ordinals are 0, 1, 2 ... up to its number of events; all of those have its commit time and xid.
- A table's rows get another shape only after a SCHEMA event has described it.
- An INSERT (or a snapshot's READ) finds no row with its key, an UPDATE or DELETE finds one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from headgate.model import Position
from headgate.wire.pgoutput import parse_lsn

__all__ = ["Event", "Fold", "FoldError", "KeyedRows", "Row", "RowBag", "Rows", "TableName"]

Event: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]
TableName: TypeAlias = tuple[str, str]
Key: TypeAlias = tuple[Any, ...]

_FIELDS = (
    "schema", "table", "operation", "relation_id", "schema_version", "subject", "commit_lsn", "commit_time", "xid",
    "event_count", "lsn", "ordinal", "msg_id", "data",
)  # fmt: skip


class FoldError(AssertionError):
    """The stream cannot be what the server did."""


class Rows(Protocol):
    """The rows of one table; each method is one operation and raises FoldError if it cannot have happened."""

    def insert(self, data: Row) -> None:
        """A new row."""

    def update(self, data: Row, old: Row | None) -> None:
        """A changed row, and as much of the old one as was sent."""

    def delete(self, data: Row) -> None:
        """A row that is gone, or its key."""

    def clear(self) -> None:
        """All rows are gone."""

    def __len__(self) -> int: ...


class KeyedRows:
    """Rows by the columns of their replica identity."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: dict[Key, Row] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def key_of(self, row: Row) -> Key:
        """The key's values; the row must have all of them."""
        try:
            return tuple(row[name] for name in self.key)
        except KeyError as missing:
            raise FoldError(f"the key column {missing} is absent") from None

    def insert(self, data: Row) -> None:
        self._add(data)

    def update(self, data: Row, old: Row | None) -> None:
        """Absent columns keep their values: also when the key changes."""
        before = self._take(data if old is None else old)
        self._add({**before, **data})

    def delete(self, data: Row) -> None:
        self._take(data)

    def clear(self) -> None:
        self.rows.clear()

    def _take(self, row: Row) -> Row:
        key = self.key_of(row)
        if key not in self.rows:
            raise FoldError(f"there is no row {key!r}")
        return self.rows.pop(key)

    def _add(self, row: Row) -> None:
        key = self.key_of(row)
        if key in self.rows:
            raise FoldError(f"there is a row {key!r} already")
        self.rows[key] = row


class RowBag:
    """Rows that only all of their columns identify; the same one may be there many times.

    Rows are told apart by their text in Python, in which NaN equals itself and 1, 1.0 and True differ.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rows: dict[str, Row] = {}

    def __len__(self) -> int:
        return self.counts.total()

    @staticmethod
    def text_of(row: Row) -> str:
        """What tells the row from others."""
        return repr(sorted(row.items()))

    def insert(self, data: Row) -> None:
        text = self.text_of(data)
        self.counts[text] += 1
        self.rows[text] = data

    def update(self, data: Row, old: Row | None) -> None:
        """A large value that did not change is in the old row only."""
        if old is None:
            raise FoldError("an update of a table without a key has no old row")
        self.delete(old)
        self.insert({**old, **data})

    def delete(self, data: Row) -> None:
        text = self.text_of(data)
        if not self.counts[text]:
            raise FoldError("there is no such row")
        self.counts[text] -= 1

    def clear(self) -> None:
        self.counts.clear()
        self.rows.clear()


class Fold:
    """The state of the tables after the events so far. `keys` names each table's identity; empty for the whole row."""

    def __init__(self, keys: Mapping[TableName, tuple[str, ...]]) -> None:
        self.tables: dict[TableName, Rows] = {name: KeyedRows(key) if key else RowBag() for name, key in keys.items()}
        self.operations: Counter[str] = Counter()
        self.transactions = 0
        self._order = _Order()
        self._shapes: dict[TableName, set[str]] = {}

    @property
    def position(self) -> Position | None:
        """That of the last event."""
        return self._order.last

    def feed_all(self, events: Iterable[Event]) -> Fold:
        """Feed many; returns itself."""
        for event in events:
            self.feed(event)
        return self

    def feed(self, event: Event) -> None:
        """Take the next event of the stream."""
        try:
            _check_shape(event)
            if event["operation"] == "SCHEMA":
                self._learn(event)
            else:
                if self._order.advance(event):
                    self.transactions += 1
                self._apply(event)
        except FoldError as error:
            raise FoldError(f"{_where(event)}: {error}") from None
        self.operations[event["operation"]] += 1

    def _learn(self, event: Event) -> None:
        self._order.announce(event)
        if event["data"]["version"] != event["schema_version"]:
            raise FoldError("a description of another version")
        self._shapes.setdefault((event["schema"], event["table"]), set()).add(event["schema_version"])

    def _apply(self, event: Event) -> None:
        operation, data = event["operation"], event["data"]
        if operation == "MESSAGE":
            return
        known = self._shapes.setdefault((event["schema"], event["table"]), {event["schema_version"]})
        if event["schema_version"] not in known:
            raise FoldError("a shape that nothing has described")
        rows = self.tables.get((event["schema"], event["table"]))
        if rows is None:
            raise FoldError("the table is not published")
        match operation:
            case "INSERT" | "READ":
                rows.insert(data)
            case "UPDATE":
                rows.update(data, event.get("old"))
            case "DELETE":
                rows.delete(data)
            case "TRUNCATE":
                rows.clear()  # what a CASCADE reached comes as an event of its own
            case _:
                raise FoldError("there is no such operation")


class _Order:
    """The rules about positions."""

    def __init__(self) -> None:
        self.last: Position | None = None
        self._system: str | None = None
        self._seen: set[str] = set()
        self._transaction: tuple[Any, Any, Any] = (None, None, None)

    def advance(self, event: Event) -> bool:
        """Step on to the event; true if it is the first of its transaction."""
        position = self._identified(event)
        last, self.last = self.last, position
        about = (event["xid"], event["commit_time"], event["event_count"])
        if last is not None and position <= last:
            raise FoldError(f"it comes after position {last}")
        if last is None or position.major != last.major:
            self._end(last)
            self._transaction = about
            if position.ordinal != 0:
                raise FoldError(f"the transaction's events before ordinal {position.ordinal} are missing")
            return True
        if position.ordinal != last.ordinal + 1:
            raise FoldError(f"events between ordinals {last.ordinal} and {position.ordinal} are missing")
        if about != self._transaction:
            raise FoldError("xid, commit time or number of events differ from the same transaction's before")
        return False

    def announce(self, event: Event) -> None:
        """A description comes between two transactions, and belongs to the second."""
        commit_lsn = parse_lsn(event["commit_lsn"])
        if event["ordinal"] is not None or f"{commit_lsn:016X}-/" not in event["msg_id"]:
            raise FoldError("a description with the identity of a row")
        if event["msg_id"] in self._seen:
            raise FoldError("its message id came before: a duplicate")
        self._seen.add(event["msg_id"])
        if self.last is not None and commit_lsn <= self.last.major:
            raise FoldError("a description after rows of its transaction")
        self._end(self.last)

    def _end(self, last: Position | None) -> None:
        if last is not None and last.ordinal != self._transaction[2] - 1:
            raise FoldError(f"the transaction before ends at ordinal {last.ordinal} of {self._transaction[2]} events")

    def _identified(self, event: Event) -> Position:
        position = Position(parse_lsn(event["commit_lsn"]), event["ordinal"])
        name = event["msg_id"]
        system, dash, rest = name.partition("-")
        timeline = int(rest[:8], 16) if len(rest) == len(f"{position}") + 8 else 0
        position = position._replace(timeline=timeline)
        if not dash or rest != str(position) or system != (self._system or system):
            raise FoldError(f"the message id {name!r} is not that of position {position}")
        if name in self._seen:
            raise FoldError("its message id came before: a duplicate")
        self._system = system
        self._seen.add(name)
        return position


def _check_shape(event: Event) -> None:
    names = tuple(event)
    if names != _FIELDS and (names != (*_FIELDS, "old") or event["operation"] != "UPDATE"):
        raise FoldError(f"the fields are {names!r}")


def _where(event: Event) -> str:
    place = f"{event.get('commit_lsn')} #{event.get('ordinal')}"
    return f"{place} {event.get('operation')} {event.get('schema')!r}.{event.get('table')!r}"
