"""One event -> bytes, in three formats: MessagePack (the default), JSON, and Debezium's JSON.

    events(transaction)                               -> Event ...
    MessagePackEncoder(origin, types).encode(event) -> bytes

The bytes depend on the event alone: no clock, no host, no order of arrival. The same change gives the same bytes in
every replay, from a snapshot and from the stream, and from every implementation that follows these rules.

**Fields**, always these, always in this order:

    schema, table, operation, relation_id, schema_version, subject
                                                       the same for one kind of change on one table
    commit_lsn, commit_time, xid, event_count          the same for one transaction
    lsn, ordinal, msg_id                               the event's own
    data                                               a map
    old                                                a map; only for an UPDATE whose old key or row was sent

- `schema`, `table`, `relation_id`, `schema_version` are nil for a MESSAGE; `commit_time`, `xid` are nil where there is
  none. `schema_version` is 16 hexadecimal digits, see `version`.
- `event_count` is the number of events in the transaction. The one whose `ordinal` is one less is the last.
- `lsn`, `commit_lsn` are text as PostgreSQL prints it (`16/B374D848`); `commit_time` is ISO 8601 with six decimals
  and `Z`; `relation_id`, `xid`, `event_count`, `ordinal` are integers.
- `msg_id` is `{origin}-{timeline}{commit_lsn}-{ordinal}`, the latter three as 8, 16 and 8 upper-case hexadecimal
  digits (more for an ordinal that needs them): the text form of `headgate.model.Position`.
- `data` of a TRUNCATE is `cascade`, `restart_identity` (booleans); of a MESSAGE `prefix` (text), `content` (bytes),
  `transactional` (boolean). Otherwise `data` and `old` hold the columns in the table's order, each under its name;
  a column that was not sent is left out. An old key holds the columns of the replica identity only.

**MessagePack.** The event is a fixmap of 14 entries (0x8E), or 15 with `old` (0x8F). A row's map has as many entries
as columns were sent: header 0x80+n below 16, else 0xDE with 16 bits. Integers, text and bytes take their shortest
form; a float is always 0xCB with 64 bits (every NaN is 7FF8000000000000). Values follow the codec's rule
(`headgate.wire.pgtypes.Codec.name`):

    text         text, the bytes unchanged (so are numeric, interval, time, uuid, enums ...)
    json         text, the bytes unchanged
    int          integer
    float        float
    bool         `t` true, `f` false
    bytea        bytes, from hexadecimal
    date, timestamp, timestamptz, timetz
                 text in ISO 8601; for the common case: byte 10 becomes `T`, a final `+00` becomes `Z`
    array, composite, hstore
                 list, map, map

**JSON.** UTF-8, one line, no space between tokens but before a value of json. Escaped in strings: `"`, `\\`, the
control characters below 0x20 (`\\b \\f \\n \\r \\t`, else `\\u00xx` with lower-case digits); nothing else. Values
are made from PostgreSQL's text without reformatting:

    int          the digits
    float        the text, with `.0` behind it if it has neither `.` nor `e`; NaN and Infinity as strings
    bool         true, false
    bytea        a string in base64 with padding
    json         a space, then the text itself, in which a tab is two tabs, a line feed a tab and two spaces, a carriage
                 return a tab, a space and a tab: they can only stand between tokens, where JSON does not mind
    NULL         null
    the rest     a string; array and object for array, composite and hstore
"""

from __future__ import annotations

from headgate.wire.envelope.debezium import (
    UNAVAILABLE,
    DebeziumEncoder,
    DebeziumOptions,
    Frame,
    framed,
    json_schema,
    unframed,
)
from headgate.wire.envelope.event import Event, Operation, events, iso_time, message_id
from headgate.wire.envelope.msgpack import MAX_DEPTH, packb, unpackb
from headgate.wire.envelope.native import JsonEncoder, MessagePackEncoder
from headgate.wire.envelope.schema_event import SCHEMA, encode_fields, schema_event
from headgate.wire.envelope.subject import (
    DEFAULT_SUBJECT,
    GAP_PREFIX,
    HEARTBEAT_PREFIX,
    TABLE_SUBJECT,
    key_token,
    subject_of,
    subject_token,
)
from headgate.wire.envelope.version import schema_version

__all__ = [
    "DEFAULT_SUBJECT",
    "GAP_PREFIX",
    "HEARTBEAT_PREFIX",
    "MAX_DEPTH",
    "SCHEMA",
    "TABLE_SUBJECT",
    "UNAVAILABLE",
    "DebeziumEncoder",
    "DebeziumOptions",
    "Event",
    "Frame",
    "JsonEncoder",
    "MessagePackEncoder",
    "Operation",
    "encode_fields",
    "events",
    "framed",
    "iso_time",
    "json_schema",
    "key_token",
    "message_id",
    "packb",
    "schema_event",
    "schema_version",
    "subject_of",
    "subject_token",
    "unframed",
    "unpackb",
]
