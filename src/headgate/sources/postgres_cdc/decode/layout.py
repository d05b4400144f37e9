"""The tables that Python prepares and kernels read, and the arrays that kernels fill.

All numbers stand in two-dimensional int64 arrays, one row per thing, one column per constant of this module; all
bytes that are known before the first row is seen stand in one array `Tables.text`, and the numbers point into it.

A **shape** is one version of a relation: what a Relation message said, until the next one for that relation. Shapes
are only ever added, so that a row may keep the number of its shape.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]

# What happened. The number of an operation is also its place in `OPERATIONS`.
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = range(5)
OPERATIONS = ("insert", "update", "delete", "truncate", "message")

# How a column's text is read: `Codec.name` of the reference, as a number. SLOW values are left to the reference.
TEXT, JSON, INT, FLOAT, BOOL, BYTEA, DATE, TIMESTAMP, TIMESTAMPTZ, SLOW = range(10)
RULES = {
    "text": TEXT,
    "json": JSON,
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "bytea": BYTEA,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMPTZ,
}

# Formats of a payload.
MSGPACK_FORM, JSON_FORM = range(2)

# Tables.shapes: the first of its columns in Tables.columns and their number, whether the reference must write whole
# events, how many bytes an event takes at most besides its values, and the constant begin of an event for each of
# INSERT, UPDATE, DELETE (start and stop in Tables.text).
FIRST, COUNT, WHOLE, FIXED, HEADS = range(5)
SHAPE_FIELDS = HEADS + 2 * 3

# Tables.columns: the column's name as the format writes it before a value, its rule, whether it is in the replica
# identity.
NAME, NAME_END, RULE, IS_KEY = range(4)
COLUMN_FIELDS = 4

# Tables.pieces: the constant bytes between the variable fields of an event; piece n ends where piece n + 1 starts.
COMMIT_LSN, COMMIT_TIME, XID, LSN, ORDINAL, MSG_ID, DATA, OLD, PIECE_COUNT = range(9)

# Batch.gaps: values that the reference has to supply. Where in the payload, for which row, which column (a number in
# Tables.columns, or WHOLE_EVENT), and where its text stands in the source.
GAP_AT, GAP_ROW, GAP_COLUMN, GAP_START, GAP_STOP = range(5)
GAP_FIELDS = 5
WHOLE_EVENT = -1

# The state of a walk, kept between calls of the kernel.
(
    AT,  # the next message in the source
    ROWS,  # rows in the batch
    SIZE,  # bytes in Batch.payload
    GAPS,  # gaps in the batch
    OWED,  # source bytes behind those gaps
    IN_TRANSACTION,
    TX_LSN,
    TX_TIME,  # 0 is none
    TX_XID,  # 0 is none
    NEXT_ORDINAL,
    TRUNCATED,  # how many relations of the current Truncate message are already in rows
    HEAD_END,  # Batch.transaction holds the transaction's constant fields before the ordinal ...
    ID_END,  # ... and behind it
    NEED,  # after NO_ROOM: the bytes that the next row may take
    RELATION_ID,  # after UNKNOWN_RELATION
    COMPILED_FROM,
    STATE_FIELDS,
) = range(17)

# Why a kernel returned.
(
    DONE,  # the source is at its end
    FULL,  # the batch is
    NO_ROOM,  # the next row does not fit even into an empty batch
    RELATION,  # a Relation message stands at AT
    UNKNOWN_RELATION,  # a change to a relation that has no shape yet
    CUT_OFF,
    NOT_A_CHANGE,
    OUTSIDE,
    MALFORMED,
    OTHER_COLUMNS,
    NO_TIME,
    LONE,
    TOO_MANY,
) = range(13)

POSITION_BYTES = 25  # of the text form of a Position: 16 digits, a dash, 8 digits


class Tables(NamedTuple):
    """What kernels read besides the source."""

    text: Bytes  # read-only
    pieces: Numbers
    ids: Numbers  # the relations that have a shape, sorted ...
    shape_of: Numbers  # ... and which
    shapes: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]


class Batch(NamedTuple):
    """What kernels fill: one entry per row, and the bytes of all payloads one behind the other."""

    message: Numbers  # where the row's message begins in the source
    shape: npt.NDArray[np.int32]  # -1 for a logical message
    op: npt.NDArray[np.int32]
    xid: Numbers
    time: Numbers  # microseconds since 1970
    position: Bytes
    offsets: npt.NDArray[np.int32]
    payload: Bytes
    gaps: npt.NDArray[np.int64]
    transaction: Bytes


State: TypeAlias = Numbers
Any_ = Any
