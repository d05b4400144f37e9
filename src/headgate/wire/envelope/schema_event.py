"""The event that describes a table: the same fields as any other, with the description as its `data`.

It belongs to the transaction whose rows come next, and is none of its events: it has no `ordinal`, and no
`event_count` counts it. Its `msg_id` sorts before those of the transaction's rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headgate.wire.envelope.event import iso_time
from headgate.wire.envelope.msgpack import packb
from headgate.wire.envelope.subject import fill_subject
from headgate.wire.pgoutput import format_lsn

__all__ = ["SCHEMA", "encode_fields", "schema_event"]

SCHEMA = "SCHEMA"


def schema_event(
    description: Mapping[str, Any],
    *,
    origin: str,
    subject: str,
    position: str,
    commit_lsn: int,
    commit_time: int | None,
    xid: int | None,
) -> dict[str, Any]:
    """The fields, in the order of the envelope. `subject` is a template."""
    schema, table = description["schema"], description["table"]
    return {
        "schema": schema,
        "table": table,
        "operation": SCHEMA,
        "relation_id": description["relation_id"],
        "schema_version": description["version"],
        "subject": fill_subject(subject, schema, table, SCHEMA.lower()),
        "commit_lsn": format_lsn(commit_lsn),
        "commit_time": None if commit_time is None else iso_time(commit_time),
        "xid": xid,
        "event_count": None,
        "lsn": format_lsn(commit_lsn),
        "ordinal": None,
        "msg_id": f"{origin}-{position}",
        "data": dict(description),
    }


def encode_fields(fields: Mapping[str, Any], *, is_json: bool) -> bytes:
    """Any map of plain values in the envelope's formats."""
    if is_json:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return packb(dict(fields))
