"""Events as Debezium would publish them.

Specification: Debezium documentation, PostgreSQL connector, "Data change events".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from headgate.model import HeadgateError
from headgate.wire.envelope.debezium.columns import ColumnForm, ColumnForms, default_json, field_schema, typmod_of
from headgate.wire.envelope.debezium.options import DebeziumOptions
from headgate.wire.envelope.debezium.schema import (
    HEARTBEAT_SCHEMA,
    Schema,
    envelope_schema,
    key_schema,
    message_key_schema,
    message_schema,
    row_schema,
)
from headgate.wire.envelope.debezium.values import written_bytes
from headgate.wire.envelope.event import Event, Operation
from headgate.wire.envelope.layout import column_text
from headgate.wire.envelope.subject import HEARTBEAT_PREFIX
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US, UNCHANGED, Column, Relation, ReplicaIdentity, Row
from headgate.wire.pgtypes import TypeCatalog, quote
from headgate.wire.pgtypes.scalars import BYTEA

__all__ = ["CREATED", "TOMBSTONE", "DebeziumEncoder", "Described", "Frame", "Part", "TableForm", "unframed"]

# The parts of an event: its first message, the tombstone behind a delete, the create behind that.
TOMBSTONE, CREATED = 1, 2

Described = Callable[[Relation], Mapping[str, Any] | None]


class Frame(Protocol):
    """Tells what stands before every key or value of a schema."""

    def __call__(self, schema: Schema, of: Relation | str, /, *, is_key: bool) -> bytes:
        """Return it for a table, or for the prefix of logical messages."""


def unframed(_schema: Schema, _of: Relation | str, /, *, is_key: bool) -> bytes:
    return b""


_OP = {
    Operation.INSERT: "c",
    Operation.UPDATE: "u",
    Operation.DELETE: "d",
    Operation.READ: "r",
    Operation.TRUNCATE: "t",
    Operation.MESSAGE: "m",
}


class Part(NamedTuple):
    """One message: an event, and which of the event's messages it is. A tombstone is empty."""

    event: Event
    number: int = 0


@dataclass(frozen=True, slots=True)
class TableForm:
    """How one shape of a table is written. `fills` stand for columns of an old row that the server did not send."""

    names: tuple[str, ...]  # each with the colon behind it
    columns: tuple[ColumnForm, ...]
    fills: tuple[str, ...]
    is_primary: tuple[bool, ...]
    begin: bytes  # what stands before the old row, or before the row of a message that is one
    middle: str  # schema and table inside of `source`
    key: bytes  # what stands before the columns of a key; empty if the table has none


class DebeziumEncoder:
    """`described` tells what the catalog knows of a shape: the primary key, what may be NULL, defaults.

    `frame` is asked once for a shape: what a schema registry's consumers find their schemas by.
    """

    def __init__(
        self,
        types: TypeCatalog,
        options: DebeziumOptions = DebeziumOptions(),  # noqa: B008 - frozen
        *,
        database: str = "",
        described: Described = lambda relation: None,
        snapshot: bool = False,
        frame: Frame = unframed,
    ) -> None:
        self.options = options
        self._frame = frame
        self._forms = ColumnForms(types, options)
        self._described = described
        self._content = written_bytes(BYTEA, options.binary_handling_mode)
        self._tables: dict[int, tuple[Relation, TableForm]] = {}
        prefix, database = quote(options.topic_prefix), quote(database)
        self._skipped = {operation for operation, letter in _OP.items() if letter in options.skipped}
        # The pieces of `source`, before each of the transaction's values.
        self.source = (
            f',"source":{{"version":"headgate","connector":"postgresql","name":{prefix},"ts_ms":',
            f',"snapshot":"{str(snapshot).lower()}","db":{database},"sequence":"[\\"',
        )
        closed = "" if options.unwrap else "}"
        self.end = closed + "}" if options.schemas_enable else closed
        self.key_end = "}}" if options.schemas_enable else "}"

    def split(self, event: Event) -> Iterator[Part]:
        """The messages of an event, in order."""
        if event.operation in self._skipped:
            return
        if event.operation is Operation.UPDATE and self._moves(event):
            yield from self._deleted(replace(event, operation=Operation.DELETE, data=event.old or (), old=None))
            yield Part(replace(event, operation=Operation.INSERT), CREATED)
        elif event.operation is Operation.DELETE:
            yield from self._deleted(event)
        else:
            yield Part(event)

    def _deleted(self, event: Event) -> Iterator[Part]:
        yield Part(event)
        if self.options.has_tombstones:
            yield Part(event, TOMBSTONE)

    def _moves(self, event: Event) -> bool:
        """Whether an update changes the primary key."""
        if event.old is None or event.relation is None:
            return False
        columns = zip(self.table(event.relation).is_primary, event.old, event.data, strict=True)
        return any(
            primary and old is not UNCHANGED and new is not UNCHANGED and old != new for primary, old, new in columns
        )

    def encode(self, event: Event, now_us: int) -> bytes:
        """The bytes of an event that is one of `split`. `now_us` is the clock, in microseconds since 1970."""
        if event.operation is Operation.MESSAGE:
            is_beat = (event.detail or {}).get("prefix") == HEARTBEAT_PREFIX
            return self._heartbeat(now_us) if is_beat else self._message(event, now_us)
        relation = event.relation
        assert relation is not None
        table = self.table(relation)
        has_new = event.operation not in (Operation.DELETE, Operation.TRUNCATE)
        if self.options.unwrap and not has_new:
            return b""
        old = event.old if event.operation is Operation.UPDATE else None
        if event.operation is Operation.DELETE:
            old = event.data
        after = "null"
        if has_new:
            unavailable = tuple(form.unavailable for form in table.columns)
            after = _row_json(relation, table, _filled(event.data, event.old), unavailable)
        if self.options.unwrap:
            return table.begin + f"{after}{self.end}".encode()
        before = "null" if old is None else _row_json(relation, table, old, table.fills)
        source = self._source(event, table.middle, now_us)
        rest = f'"op":"{_OP[event.operation]}",{_times(now_us)}{self.end}'
        return table.begin + f'{before},"after":{after}{source},"transaction":null,{rest}'.encode()

    def key(self, event: Event) -> bytes | None:
        """The key of a message, which is one of `split`; None if the table has no key, and of a TRUNCATE."""
        if event.operation is Operation.MESSAGE:
            return self._key_of_message(str((event.detail or {}).get("prefix", "")))
        assert event.relation is not None
        table = self.table(event.relation)
        if not table.key or event.operation is Operation.TRUNCATE:
            return None
        row = _filled(event.data, event.old)
        items = [
            table.names[number]
            + _value_json(event.relation, table, number, row[number], table.columns[number].unavailable)
            for number, is_primary in enumerate(table.is_primary)
            if is_primary
        ]
        return table.key + f"{','.join(items)}{self.key_end}".encode()

    def _key_of_message(self, prefix: str) -> bytes:
        is_beat = prefix == HEARTBEAT_PREFIX
        name, value = ("serverName", self.options.topic_prefix) if is_beat else ("prefix", prefix)
        schema = message_key_schema(is_heartbeat=is_beat)
        return self._whole(schema, prefix, f'{{"{name}":{quote(value)}}}', is_key=True)

    def table(self, relation: Relation) -> TableForm:
        """How rows of a relation are written."""
        known = self._tables.get(relation.relation_id)
        if known is None or known[0] is not relation:
            known = relation, self._table(relation)
            self._tables[relation.relation_id] = known
        return known[1]

    def _table(self, relation: Relation) -> TableForm:
        description = self._described(relation) or {}
        details = {each["name"]: each for each in description.get("columns", ())}
        primary = _primary_key(relation, description, as_sent=self.options.message_keys)
        forms, fills, fields = [], [], []
        for column in relation.columns:
            detail = details.get(column.name, {})
            typmod = column.type_modifier if column.type_modifier >= 0 else typmod_of(detail.get("base_type"))
            form = self._forms.of(column.type_id, typmod, tuple(detail.get("labels") or ()))
            optional = bool(detail.get("nullable", True)) and column.name not in primary
            default = default_json(form, detail.get("default"))
            forms.append(form)
            fills.append(default or ("null" if optional else form.zero))
            fields.append(field_schema(form, column.name, optional=optional, default=default))
        name = f"{self.options.topic_prefix}.{relation.schema}.{relation.name}"
        if self.options.unwrap:
            begin = self._begun(row_schema(name, fields), relation, is_key=False)
        else:
            begin = self._begun(envelope_schema(name, fields), relation, is_key=False) + b'{"before":'
        key = b""
        if primary and self.options.message_keys:
            of_key = [field for field, column in zip(fields, relation.columns, strict=True) if column.name in primary]
            key = self._begun(key_schema(name, of_key), relation, is_key=True) + b"{"
        return TableForm(
            tuple(f"{quote(column.name)}:" for column in relation.columns),
            tuple(forms),
            tuple(fills),
            tuple(column.name in primary for column in relation.columns),
            begin,
            f',"schema":{quote(relation.schema)},"table":{quote(relation.name)}',
            key,
        )

    def _begun(self, schema: Schema, of: Relation | str, *, is_key: bool) -> bytes:
        """What stands before a key or value."""
        frame = self._frame(schema, of, is_key=is_key)
        if not self.options.schemas_enable:
            return frame
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        return frame + f'{{"schema":{text},"payload":'.encode()

    def _whole(self, schema: Schema, prefix: str, payload: str, *, is_key: bool) -> bytes:
        """A key or value of a logical message."""
        end = "}" if self.options.schemas_enable else ""
        return self._begun(schema, prefix, is_key=is_key) + f"{payload}{end}".encode()

    def _source(self, event: Event, middle: str, now_us: int) -> str:
        micros = now_us if event.commit_time is None else event.commit_time + PG_EPOCH_UNIX_US
        first, second = self.source
        if event.operation is Operation.READ:
            second = second.replace('"snapshot":"false"', '"snapshot":"true"', 1)
        return (
            f'{first}{micros // 1000}{second}{event.position.major}\\",\\"{event.lsn}\\"]",'
            f'"ts_us":{micros},"ts_ns":{micros * 1000}{middle},"txId":{"null" if event.xid is None else event.xid},'
            f'"lsn":{event.lsn},"xmin":null}}'
        )

    def _heartbeat(self, now_us: int) -> bytes:
        return self._whole(HEARTBEAT_SCHEMA, HEARTBEAT_PREFIX, f'{{"ts_ms":{now_us // 1000}}}', is_key=False)

    def _message(self, event: Event, now_us: int) -> bytes:
        detail = event.detail or {}
        prefix, content = detail.get("prefix", ""), detail.get("content", b"")
        assert isinstance(prefix, str)
        assert isinstance(content, bytes)
        source = self._source(event, ',"schema":"","table":""', now_us)
        hexadecimal = "\\x" + content.hex()
        text = f'{{"prefix":{quote(prefix)},"content":{self._content(hexadecimal)}}}'
        payload = f'{{"op":"m","ts_ms":{now_us // 1000}{source},"transaction":null,"message":{text}}}'
        return self._whole(message_schema(self.options.binary_handling_mode), prefix, payload, is_key=False)


def _primary_key(relation: Relation, description: Mapping[str, Any], *, as_sent: bool) -> set[str]:
    """The columns that tell a row from others: the primary key, else the replica identity if that is an index.

    `as_sent`: the identity also where deletes come without some column of the primary key.
    """
    names = set(description.get("primary_key") or ())
    sent = {column.name for column in relation.columns if column.is_key}
    is_other = relation.identity is ReplicaIdentity.INDEX and not names <= sent
    if names and not (as_sent and is_other):
        return names
    return set() if relation.identity is ReplicaIdentity.FULL else sent


def _filled(new: Row, old: Row | None) -> Row:
    """The new row, with what was left out of line taken from the old one where that is known."""
    if old is None or UNCHANGED not in new:
        return new
    return tuple(before if after is UNCHANGED else after for before, after in zip(old, new, strict=True))


def _row_json(relation: Relation, table: TableForm, row: Row, absent: tuple[str, ...]) -> str:
    items = []
    for number, value in enumerate(row):
        items.append(table.names[number] + _value_json(relation, table, number, value, absent[number]))
    return "{" + ",".join(items) + "}"


def _value_json(relation: Relation, table: TableForm, number: int, value: Column, absent: str) -> str:
    if value is UNCHANGED:
        return absent
    return "null" if value is None else column_json(relation, number, table.columns[number], value)


def column_json(relation: Relation, number: int, form: ColumnForm, value: Column) -> str:
    """A value as it stands behind its name. An error names the column."""
    assert isinstance(value, bytes)
    try:
        return form.json(column_text(value))
    except HeadgateError as error:
        raise error.at(f"{relation.schema}.{relation.name}.{relation.columns[number].name}") from None


def _times(micros: int) -> str:
    return f'"ts_ms":{micros // 1000},"ts_us":{micros},"ts_ns":{micros * 1000}'
