"""What the formats have in common: the fields before the row, and a row's columns as values or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from headgate.model import DataError, HeadgateError, ProtocolError
from headgate.wire.envelope.event import Event, iso_time, message_id
from headgate.wire.envelope.version import schema_version
from headgate.wire.pgoutput import UNCHANGED, BinaryValue, Relation, RelationColumn, Row, format_lsn
from headgate.wire.pgtypes import Codec, TypeCatalog, Value, json_base64, quote

__all__ = ["Rows", "Subject", "column_text", "head", "json_detail"]

Subject: TypeAlias = Callable[[Event], str]
T = TypeVar("T")


def head(event: Event, origin: int | str, subject: Subject) -> dict[str, str | int | None]:
    """Every field but `data` and `old`, in the order of the envelope.

    First what is the same for all events of a kind on a table, then what is the same in a transaction, then the rest:
    an encoder may keep the first two parts ready.
    """
    relation = event.relation
    return {
        "schema": relation.schema if relation else None,
        "table": relation.name if relation else None,
        "operation": event.operation.value,
        "relation_id": relation.relation_id if relation else None,
        "schema_version": schema_version(relation) if relation else None,
        "subject": subject(event),
        "commit_lsn": format_lsn(event.position.major),
        "commit_time": None if event.commit_time is None else iso_time(event.commit_time),
        "xid": event.xid,
        "event_count": event.count,
        "lsn": format_lsn(event.lsn),
        "ordinal": event.position.ordinal,
        "msg_id": message_id(origin, event.position),
    }


def json_detail(detail: Mapping[str, bool | str | bytes]) -> str:
    """The `data` of a TRUNCATE or a MESSAGE as JSON."""
    return "{" + ",".join(f"{quote(key)}:{_json_scalar(value)}" for key, value in detail.items()) + "}"


def _json_scalar(value: bool | str | bytes) -> str:
    if isinstance(value, bytes):
        return json_base64(value)
    return quote(value) if isinstance(value, str) else ("true" if value else "false")


class Rows:
    """Reads rows by their columns' types. Remembers each table's codecs until the table's shape changes."""

    __slots__ = ("_codecs", "_types")

    def __init__(self, types: TypeCatalog) -> None:
        self._types = types
        self._codecs: dict[int, tuple[Relation, tuple[Codec, ...]]] = {}

    def values(self, relation: Relation, row: Row) -> Value:
        """The columns that were sent as a map of neutral values."""
        return {
            column.name: None if value is None else _read(relation, column, codec.decode, value)
            for column, codec, value in zip(relation.columns, self._of(relation), row, strict=True)
            if value is not UNCHANGED
        }

    def json(self, relation: Relation, row: Row, unavailable: str | None = None) -> str:
        """The columns that were sent as a JSON object; `unavailable` is JSON to put for those that were not."""
        items = []
        for column, codec, value in zip(relation.columns, self._of(relation), row, strict=True):
            if value is UNCHANGED:
                text = unavailable
            else:
                text = "null" if value is None else _read(relation, column, codec.json, value)
            if text is not None:
                items.append(f"{quote(column.name)}:{text}")
        return "{" + ",".join(items) + "}"

    def _of(self, relation: Relation) -> tuple[Codec, ...]:
        known = self._codecs.get(relation.relation_id)
        if known is None or known[0] is not relation:
            known = relation, tuple(self._types.codec(column.type_id) for column in relation.columns)
            self._codecs[relation.relation_id] = known
        return known[1]


def _read(relation: Relation, column: RelationColumn, read: Callable[[str], T], value: bytes) -> T:
    try:
        return read(column_text(value))
    except HeadgateError as error:
        raise error.at(f"{relation.schema}.{relation.name}.{column.name}") from None


def column_text(value: bytes) -> str:
    """A value in text format, which is always UTF-8."""
    if isinstance(value, BinaryValue):
        raise DataError("a column is in binary format", remedy="Start replication without the option binary.")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ProtocolError(
            "a column is not UTF-8", remedy="mend the value: text of a database in SQL_ASCII must be UTF-8 already"
        ) from None
