"""The envelope of Debezium's PostgreSQL connector, with its defaults, for consumers that already read it.

    DebeziumEncoder(types, DebeziumOptions(topic_prefix="shop"), database="shop").split(event)  -> Part ...
    encoder.encode(part.event, now_us)                                                          -> bytes

One event of ours is up to three of Debezium's (`split`): an update that changes the primary key is a delete and a
create, and behind a delete there is a tombstone. `docs/debezium.md` lists what differs from Debezium, and why.
"""

from __future__ import annotations

from headgate.wire.envelope.debezium.encoder import DebeziumEncoder, Frame, Part, TableForm, unframed
from headgate.wire.envelope.debezium.json_schema import framed, json_schema
from headgate.wire.envelope.debezium.options import DebeziumOptions
from headgate.wire.envelope.debezium.values import UNAVAILABLE

__all__ = [
    "UNAVAILABLE",
    "DebeziumEncoder",
    "DebeziumOptions",
    "Frame",
    "Part",
    "TableForm",
    "framed",
    "json_schema",
    "unframed",
]
