"""The tables that Python prepares and kernels read, and the arrays that kernels fill.

Numbers stand in two-dimensional int64 arrays, one row per thing, one column per constant below. All bytes that are
known before the first event stand in `Tables.text`, one behind the other, and the numbers point into it.

A **shape** is one version of a relation: what a Relation message said, until the next one for the same relation.
Shapes are only ever added, so an event keeps the number of its shape.

A **gap** is a value (or a whole event) that a kernel leaves to the reference: it writes nothing for it, and notes
where in the payload it belongs. `gaps` puts it there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import types

from headgate.kernels.jit import BYTES, BYTES_READ, NUMBERS, TABLE

__all__ = ["Batch", "Bytes", "Numbers", "State", "Table", "Tables"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.int64]
Table: TypeAlias = npt.NDArray[np.int64]  # of two dimensions
State: TypeAlias = Numbers

# What a payload is written as.
MSGPACK, JSON, DEBEZIUM = range(3)

# The images of a row: key, old row, new row.
KEY, BEFORE, AFTER = range(3)

# What happened; the first three have a row.
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = range(5)
OPERATIONS = ("insert", "update", "delete", "truncate", "message")
ROW_OPERATIONS = 3

# How a column's text is read: `Codec.name` of the reference as a number. SLOW is whatever has no number of its own.
RULES = ("text", "json", "int", "float", "bool", "bytea", "date", "timestamp", "timestamptz")
TEXT, JSON_TEXT, INT, FLOAT, BOOL, BYTEA, DATE, TIMESTAMP, TIMESTAMPTZ, SLOW = range(10)

# More of them, for Debezium: `ColumnForm.rule` of its encoder.
DEBEZIUM_RULES = (
    "days", "micros", "millis", "time_micros", "time_millis", "zoned", "decimal", "variable", "iso_date", "iso_time",
    "iso_timestamp",
)  # fmt: skip
(
    DAYS, MICROS, MILLIS, TIME_MICROS, TIME_MILLIS, ZONED, DECIMAL, VARIABLE, ISO_DATE, ISO_TIME, ISO_TIMESTAMP,
) = range(10, 21)  # fmt: skip

# Tables.relations, sorted by id: the shape that is in force now.
ID, SHAPE = range(2)

# Tables.shapes: where its columns begin in Tables.columns, how many there are, and how many of them are in the replica
# identity; whether the reference writes its whole events; how many bytes an event takes at most besides its values;
# and for each operation with a row, where in Tables.text an event's constant first fields begin and end.
FIRST, COUNT, KEY_COUNT, WHOLE, FIXED, HEADS = range(6)
SHAPE_FIELDS = HEADS + 2 * ROW_OPERATIONS

# Tables.columns: where in Tables.text the name begins and ends, just as it stands before a value; the rule; whether
# the column belongs to the replica identity. For Debezium alone: the rule's parameter, whether it belongs to the
# primary key, and where the texts begin and end that stand for a value left out of line, and for one that an old row
# lacks.
(
    NAME, NAME_END, RULE, IS_KEY, PARAM, IS_PRIMARY, UNAVAILABLE, UNAVAILABLE_END, FILL, FILL_END,
) = range(10)  # fmt: skip
COLUMN_FIELDS = 10

# Tables.pieces: the constant bytes before each variable field of an event, and behind the last. Piece n begins in
# Tables.text at pieces[n] and ends where piece n + 1 begins.
COMMIT_LSN, COMMIT_TIME, XID, EVENT_COUNT, LSN, ORDINAL, MSG_ID, DATA, OLD, END = range(10)

# The pieces of Debezium's events: before each of the transaction's values, and what follows its times.
(
    SOURCE_MILLIS, SEQUENCE_FIRST, SEQUENCE_SECOND, SOURCE_MICROS, SOURCE_NANOS, TX_ID, SOURCE_LSN, OP, NOW_MILLIS,
    NOW_MICROS, NOW_NANOS, TAIL, AFTER_ROW, KEY_END,
) = range(14)  # fmt: skip

# Its shapes have three texts, in place of the first fields of operations: what an event begins with, what stands in the
# middle of its source, and what a key begins with, which is empty if the table has none.
BEGIN_TEXT, BEGIN_TEXT_END, MIDDLE_TEXT, MIDDLE_TEXT_END, KEY_TEXT, KEY_TEXT_END = range(HEADS, HEADS + 6)

# Batch.rows: where its message begins in the source; shape (NO_SHAPE for a logical message) and operation; the
# transaction's xid, commit time in microseconds since 2000 and number of events (0 for none); where its payload ends.
# And which message of its change it is: 0, unless a change becomes several.
SOURCE, OF_SHAPE, OPERATION, OF_XID, TIME, OF_EVENTS, PAYLOAD_END, PART = range(8)
ROW_FIELDS = 8
NO_SHAPE = -1

# Batch.gaps: the place in the payload; the row; the column (in Tables.columns), or WHOLE_EVENT; begin and end of the
# value in the source.
PLACE, GAP_ROW, GAP_COLUMN, START, STOP = range(5)
GAP_FIELDS = 5
WHOLE_EVENT = -1
GAPS_OF_WHOLE = 1

# State: what a kernel remembers from call to call.
(
    AT,  # the next message in the source
    ROWS,  # rows, payload bytes and gaps in the batch, and how many source bytes the gaps stand for
    SIZE,
    GAPS,
    OWED,
    IN_TRANSACTION,  # whether there is one; its commit LSN, time, xid and events (0 for none), and the next ordinal
    TX_LSN,
    TX_TIME,
    TX_XID,
    TX_EVENTS,
    NEXT_ORDINAL,
    TRUNCATED,  # how many relations of the current Truncate message, or parts of a change, already have their event
    HEAD_END,  # Batch.transaction[:HEAD_END] are the transaction's fields before an event's ordinal ...
    ID_END,  # ... and Batch.transaction[HEAD_END:ID_END] those behind it
    MOST_BYTES,  # what may take more than this is left to the reference
    NEED_BYTES,  # after NO_ROOM: what the next event may take of the payload and the gaps
    NEED_GAPS,
    RELATION_ID,  # after UNKNOWN_RELATION
    COMPILED_FROM,  # see `jit`
    TAIL_END,  # for Debezium: Batch.transaction[ID_END:TAIL_END] is what stands behind an event's operation
    NOW_US,  # the clock
    SKIPPED,  # a bit for each operation that is left out
    TOMBSTONES,  # whether a delete is followed by one
    FROM_SNAPSHOT,  # whether inserts are rows that were there already
    SHARE,  # of how many shares which one is wanted, and whether they are by key: see `shares`
    SHARES,
    BY_KEY,
    ROW_ONLY,  # for Debezium: whether a message is the row alone
    STATE_FIELDS,
) = range(29)

# Why a kernel returned: first what is in order, then what is wrong with the source.
(
    DONE,  # everything is read
    FULL,  # the batch
    NO_ROOM,  # for the next event, not even in an empty batch
    RELATION,  # a Relation message is next
    UNKNOWN_RELATION,  # the next event's relation has no shape yet
    SCHEMA,  # a table's new description is next
    CUT_OFF,
    MISPLACED,
    OUTSIDE,
    MALFORMED,
    OTHER_COLUMNS,
    NO_SUCH_TIME,
    NOT_ALONE,
    TOO_MANY,
) = range(14)

POSITION_BYTES = 25  # the text form of a Position: 16 digits, a dash, 8 digits
LSN_DIGITS, ORDINAL_DIGITS = 16, 8
START_OF_TEXT = 0


class Tables(NamedTuple):
    """What kernels read besides the source."""

    text: Bytes  # read-only
    pieces: Numbers
    relations: Table
    shapes: Table
    columns: Table


class Batch(NamedTuple):
    """What kernels fill."""

    rows: Table
    position: Bytes
    payload: Bytes
    gaps: Table
    transaction: Bytes


_named_tuple: Any = types.NamedTuple
TABLES_TYPE = _named_tuple([BYTES_READ, NUMBERS, TABLE, TABLE, TABLE], Tables)
BATCH_TYPE = _named_tuple([TABLE, BYTES, BYTES, TABLE, BYTES], Batch)
