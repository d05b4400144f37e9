"""The columns of a row on its way: the contract between sources, transforms, routes and destinations.

A source yields its own columns (what the user filters and selects) followed by reserved ones, whose names start
with an underscore. Dispatch turns every row into the delivery columns, which is all a destination sees.
"""

from __future__ import annotations

__all__ = [
    "DELIVERY_COLUMNS",
    "MESSAGE_ID",
    "OP",
    "PAYLOAD",
    "POSITION",
    "RESERVED_PREFIX",
    "SCHEMA",
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
PAYLOAD = "_payload"  # binary

DELIVERY_COLUMNS = (TOPIC, MESSAGE_ID, PAYLOAD)
