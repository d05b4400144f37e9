"""What kernels leave out, done by the reference: rare values, rare events, and formats without a kernel.

This is per-value Python, some microseconds each. It is also where bad values get their error: a kernel that does not
like a value leaves it to the reference, which names the column.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

from headgate.kernels.changes import layout
from headgate.kernels.frames import SchemaFrame
from headgate.model import Position
from headgate.model.position import timeline_text
from headgate.model.record import OP, PAYLOAD, POSITION, SCHEMA, TABLE, TOPIC
from headgate.wire.envelope import (
    HEARTBEAT_PREFIX,
    DebeziumEncoder,
    Event,
    JsonEncoder,
    MessagePackEncoder,
    Operation,
    encode_fields,
    events,
    packb,
    schema_event,
    subject_of,
)
from headgate.wire.envelope import SCHEMA as SCHEMA_EVENT
from headgate.wire.envelope.layout import Rows, head
from headgate.wire.pgoutput import (
    PG_EPOCH_UNIX_US,
    UNCHANGED,
    Change,
    Column,
    Decoder,
    Delete,
    Insert,
    LogicalMessage,
    Relation,
    Transaction,
    Truncate,
    Update,
    lone_message,
)
from headgate.wire.pgtypes import TypeCatalog, quote

__all__ = ["Format", "Reference", "ValueWriter"]

Format: TypeAlias = Literal["msgpack", "json", "debezium"]

_SHORT_BYTES = 64
_REMEMBERED = 1024


class Reference:
    """Events and their bytes, as the reference makes them."""

    def __init__(
        self,
        origin: str,
        types: TypeCatalog,
        format: Format,  # noqa: A002
        subject: str,
        timeline: int = 0,
        debezium: DebeziumEncoder | None = None,
    ) -> None:
        self._origin = origin
        self._timeline = timeline
        self._format = format
        self._template = subject
        self._subject = partial(subject_of, template=subject)
        self._debezium = debezium
        encoder = MessagePackEncoder if format == "msgpack" else JsonEncoder
        self._encoder = encoder(origin, types, self._subject)
        self._decoder = Decoder(1)
        self._rows = Rows(types)

    def event(
        self, message: bytes, relation: Relation | None, position: Position, time: int, xid: int, count: int
    ) -> Event:
        """The event of a message. The time is PostgreSQL's; 0 is none, and no xid."""
        body = self._decoder.decode(message)
        assert isinstance(body, Insert | Update | Delete | Truncate | LogicalMessage)
        if isinstance(body, LogicalMessage) and not body.transactional:
            transaction = lone_message(body, body.lsn)
        else:
            lsn = body.lsn if isinstance(body, LogicalMessage) else position.major
            change = Change(position.ordinal, lsn, relation, body)
            transaction = Transaction(position.major, position.major, time or None, xid or None, (change,))
        event = next(events(replace(transaction, count=count)))
        return replace(event, position=event.position._replace(timeline=self._timeline))

    def schema_row(self, frame: SchemaFrame) -> dict[str, Any] | None:
        """The row of an event that describes a table, if the format has such events."""
        if self._format == "debezium":
            return None
        position = timeline_text(self._timeline) + frame.position
        fields = schema_event(
            frame.description,
            origin=self._origin,
            subject=self._template,
            position=position,
            commit_lsn=frame.commit_lsn,
            commit_time=frame.time_us or None,
            xid=frame.xid or None,
        )
        return {
            TOPIC: fields["subject"],
            POSITION: position,
            OP: SCHEMA_EVENT.lower(),
            SCHEMA: fields["schema"],
            TABLE: fields["table"],
            "_xid": fields["xid"],
            "_commit_time": fields["commit_time"] and frame.time_us + PG_EPOCH_UNIX_US,
            PAYLOAD: encode_fields(fields, is_json=self._format == "json"),
        }

    def encode(self, event: Event, now_us: int = 0) -> bytes:
        """The event's payload. The clock is for Debezium alone."""
        return self._debezium.encode(event, now_us) if self._debezium else self._encoder.encode(event)

    def key(self, event: Event) -> bytes | None:
        """The key of the event's message, in Debezium's format."""
        assert self._debezium is not None
        return self._debezium.key(event)

    def image(self, event: Event, which: int) -> bytes | None:
        """The key, the old or the new row of an event as a JSON object, if it has one."""
        relation, is_delete = event.relation, event.operation is Operation.DELETE
        if relation is None or event.detail is not None:
            return None
        if which == layout.KEY:
            keys = [column.is_key for column in relation.columns]
            pairs = zip(event.data, keys, strict=True)
            row = tuple(value if is_key else UNCHANGED for value, is_key in pairs) if any(keys) else None
        elif which == layout.BEFORE:
            row = event.data if is_delete else event.old
        else:
            row = None if is_delete else event.data
        return None if row is None else self._rows.json(relation, row).encode()

    def subject(self, event: Event) -> str:
        """Where the event goes."""
        if self._debezium and (event.detail or {}).get("prefix") == HEARTBEAT_PREFIX:
            return self._debezium.options.heartbeat_topic
        return self._subject(event)

    def head(self, event: Event) -> dict[str, str | int | None]:
        """The fields before the row."""
        return head(event, self._origin, self._subject)


class ValueWriter:
    """The values of one column in one format, as they stand behind the column's name.

    The value is written inside maps and cut out again, since how deep it may be nested depends on where it stands.
    """

    def __init__(self, types: TypeCatalog, relation: Relation, column: int, form: int) -> None:
        alone = relation.columns[column]
        self._relation = Relation(relation.relation_id, relation.schema, relation.name, relation.identity, (alone,))
        self._rows = Rows(types)
        self._is_json = form == layout.JSON
        self._before = len(f"{{{quote(alone.name)}:") if self._is_json else len(packb({"": {alone.name: None}})) - 1
        # Few different values make most of such a column: `{}`, `infinity`, a handful of tags.
        self._remembered = lru_cache(_REMEMBERED, typed=True)(self._write)

    def __call__(self, value: Column) -> bytes:
        """The value's bytes."""
        is_short = isinstance(value, bytes) and len(value) <= _SHORT_BYTES
        return self._remembered(value) if is_short else self._write(value)

    def _write(self, value: Column) -> bytes:
        if self._is_json:
            return self._rows.json(self._relation, (value,))[self._before : -1].encode()
        return packb({"": self._rows.values(self._relation, (value,))})[self._before :]
