"""The columns of a row on its way: the contract between sources, transforms, routes and destinations.

A source yields its own columns (what the user filters and selects) followed by reserved ones, whose names start
with an underscore. Dispatch turns every row into the delivery columns, which is all a destination sees.
"""

from __future__ import annotations

__all__ = [
    "BEHIND",
    "DELIVERY_COLUMNS",
    "MESSAGE_ID",
    "OP",
    "PARTITION",
    "PARTITION_KEY",
    "PAYLOAD",
    "POSITION",
    "RESERVED_PREFIX",
    "SCHEMA",
    "SHARE",
    "STREAM",
    "TABLE",
    "TOPIC",
]

RESERVED_PREFIX = "_"

# What a source adds to its own columns.
POSITION = "_position"  # string form of model.Position; unique per event, sorts in the source's order
OP = "_op"  # insert, update, delete, truncate, read
SCHEMA = "_schema"
TABLE = "_table"

# What a destination receives.
TOPIC = "_topic"  # string
MESSAGE_ID = "_message_id"  # string; the same row has the same id in every replay
PAYLOAD = "_payload"  # binary; NULL, in a row with a partition key, is a tombstone: nothing is left of that key

# What it receives besides if rows say where they go or have a key. NULL leaves the choice to the destination.
STREAM = "_stream"  # string; NULL is the destination's own stream
PARTITION_KEY = "_partition_key"  # binary; rows of one key stay in order
PARTITION = "_partition"  # int32; an explicit partition, counted from 0

DELIVERY_COLUMNS = (TOPIC, MESSAGE_ID, PAYLOAD)

# Beside the columns, as metadata of their schema, where several tasks send a batch between them: see `Lane`.
SHARE = b"headgate.share"
BEHIND = b"headgate.behind"
