"""The envelope of Debezium's PostgreSQL connector, for consumers that already read it.

Shape: that of JSON without schemas (`value.converter.schemas.enable=false`). Values: those of Debezium's string modes
(`decimal.handling.mode=string`, `time.precision.mode=isostring`, `interval.handling.mode=string`,
`binary.handling.mode=base64`), with JSON columns as strings of JSON text.

Different on purpose: times are those of the commit, since a clock would make replays differ; a changed key is one
update with the old key in `before`, not a delete and a create; `source.msg_id` is headgate's message id. Equal on
purpose: an unchanged out-of-line value is Debezium's placeholder, which its consumers look for.
"""

from __future__ import annotations

import json

from headgate.wire.envelope.event import Event, Operation, message_id
from headgate.wire.envelope.layout import Rows
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US
from headgate.wire.pgtypes import TypeCatalog, json_base64, quote

__all__ = ["UNAVAILABLE", "DebeziumEncoder"]

UNAVAILABLE = "__debezium_unavailable_value"

_OP = {
    Operation.INSERT: "c",
    Operation.UPDATE: "u",
    Operation.DELETE: "d",
    Operation.READ: "r",
    Operation.TRUNCATE: "t",
    Operation.MESSAGE: "m",
}


class DebeziumEncoder:
    """Events as Debezium would publish them. `server` is what Debezium calls the topic prefix."""

    def __init__(self, origin: int | str, types: TypeCatalog, *, database: str, server: str) -> None:
        self._origin = origin
        self._database = database
        self._server = server
        self._rows = Rows(types.with_json_as_text())

    def encode(self, event: Event) -> bytes:
        """The event's bytes."""
        before, after = self._before(event), self._after(event)
        source = json.dumps(self._source(event), ensure_ascii=False, separators=(",", ":"))
        times = ",".join(f'"{name}":{"null" if at is None else at}' for name, at in _times(event).items())
        message = f',"message":{_message(event)}' if event.operation is Operation.MESSAGE else ""
        return (
            f'{{"before":{before},"after":{after},"source":{source},"transaction":null,'
            f'"op":"{_OP[event.operation]}",{times}{message}}}'
        ).encode()

    def _before(self, event: Event) -> str:
        row = event.data if event.operation is Operation.DELETE else event.old
        return "null" if row is None or event.relation is None else self._rows.json(event.relation, row)

    def _after(self, event: Event) -> str:
        if event.relation is None or event.operation in (Operation.DELETE, Operation.TRUNCATE):
            return "null"
        return self._rows.json(event.relation, event.data, unavailable=f'"{UNAVAILABLE}"')

    def _source(self, event: Event) -> dict[str, str | int | None]:
        relation = event.relation
        return {
            "version": "headgate",
            "connector": "postgresql",
            "name": self._server,
            **_times(event),
            "snapshot": "true" if event.operation is Operation.READ else "false",
            "db": self._database,
            "sequence": f'["{event.position.major}","{event.lsn}"]',
            "schema": relation.schema if relation else "",
            "table": relation.name if relation else "",
            "txId": event.xid,
            "lsn": event.lsn,
            "xmin": None,
            "msg_id": message_id(self._origin, event.position),
        }


def _times(event: Event) -> dict[str, int | None]:
    if event.commit_time is None:
        return {"ts_ms": None, "ts_us": None, "ts_ns": None}
    micros = event.commit_time + PG_EPOCH_UNIX_US
    return {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}


def _message(event: Event) -> str:
    detail = event.detail or {}
    prefix, content = detail.get("prefix", ""), detail.get("content", b"")
    assert isinstance(prefix, str)
    assert isinstance(content, bytes)
    return f'{{"prefix":{quote(prefix)},"content":{json_base64(content)}}}'
