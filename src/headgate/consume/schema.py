"""What a table looks like, as the bucket `schemas` and SCHEMA events describe it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.consume.tables import TableName
from headgate.model import ProtocolError

__all__ = ["Column", "Field", "Schema"]


class Field(msgspec.Struct, frozen=True):
    """One field of a composite type."""

    name: str
    type: str


class Column(msgspec.Struct, frozen=True):
    """One column. What the stream no longer knows of an old shape is None."""

    name: str
    type: str
    position: int = 0
    type_name: str | None = None
    type_schema: str | None = None
    type_oid: int = 0
    typmod: int = -1
    kind: str = "base"
    nullable: bool | None = True
    default: str | None = None
    generated: str | None = None
    identity: str | None = None
    key: bool | None = False
    replicated: bool | None = True
    element: str | None = None
    labels: list[str] | None = None
    base_type: str | None = None
    base_kind: str | None = None
    fields: list[Field] | None = None
    rule: Any = None  # how values are read: a rule's name, a list of one for an array, a map for a composite


class Schema(msgspec.Struct, frozen=True):
    """One version of a table's schema."""

    schema: str
    table: str
    version: str
    columns: list[Column]
    relation_id: int = 0
    lsn: str = ""
    replica_identity: str = "default"
    primary_key: list[str] = []
    key: list[str] = []
    subject: str = ""  # a template: where the bridge sends events; only the bucket says it

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.table)

    def of_relation(self, relation_id: int) -> Schema:
        """Return this shape with another relation id; 0 leaves it as it is. Several relations may have had one name."""
        return msgspec.structs.replace(self, relation_id=relation_id) if relation_id else self

    @property
    def sent(self) -> list[Column]:
        """Return the columns that events carry."""
        return [column for column in self.columns if column.replicated is not False]

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that tell a row from others and stand in every event about it; none: only the whole row does.

        Under REPLICA IDENTITY FULL every column is part of the identity, and a primary key is the better one.
        """
        sent = {column.name for column in self.sent}
        key = self.primary_key if self.replica_identity in ("full", "nothing") else self.key or self.primary_key
        return tuple(key) if sent.issuperset(key) else ()

    @classmethod
    def read(cls, document: bytes | Mapping[str, Any]) -> Schema:
        """Parse a schema from bytes of either format, or from an event's `data`."""
        try:
            if not isinstance(document, bytes):
                return msgspec.convert(document, cls)
            decode = msgspec.json.decode if document.startswith(b"{") else msgspec.msgpack.decode
            return decode(document, type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ProtocolError(
                f"not the description of a table: {error}", remedy="is the bridge newer than this consumer?"
            ) from None
