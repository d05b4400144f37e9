"""A batch's arrays -> Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.kernels.changes import layout
from headgate.kernels.changes.layout import Bytes, Numbers, Table
from headgate.kernels.changes.shapes import SUBJECT_COUNT, Shape
from headgate.kernels.picked import PICKS_ABSENT, pick_column
from headgate.model import DataError
from headgate.model.record import OP, PARTITION_KEY, PAYLOAD, POSITION, SCHEMA, TABLE, TOPIC
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US

__all__ = [
    "AFTER",
    "BEFORE",
    "COMMIT_TIME",
    "KEY",
    "XID",
    "NameColumns",
    "bytes_column",
    "number_columns",
    "position_column",
    "record_schema",
]

XID, COMMIT_TIME = "_xid", "_commit_time"
KEY, BEFORE, AFTER = "_key", "_before", "_after"

_TIME = pa.timestamp("us", tz="UTC")
_MOST_OFFSET = 2**31 - 1
PARTS = ("", ".1", ".2")  # behind a position: sorts behind it, and before the next one


def record_schema(*, images: bool = False, picks: Sequence[str] = (), keys: bool = False) -> pa.Schema:
    """The columns of a decoded batch: with `images` key, old and new row, with `picks` these columns of the row.

    With `keys` those of the messages.
    """
    fields = [
        (TOPIC, pa.string()),
        (POSITION, pa.string()),
        (OP, pa.string()),
        (SCHEMA, pa.string()),
        (TABLE, pa.string()),
        (XID, pa.int64()),
        (COMMIT_TIME, _TIME),
        (PAYLOAD, pa.binary()),
    ]
    fields += [(name, pa.string()) for name in (KEY, BEFORE, AFTER) if images]
    fields += [(pick_column(name), pa.string()) for name in picks]
    fields += [(PICKS_ABSENT, pa.bool_())] if picks else []
    return pa.schema(fields + ([(PARTITION_KEY, pa.binary())] if keys else []))


class NameColumns:
    """Subject, operation, schema and table: few different texts, many times each."""

    def __init__(self) -> None:
        self._operations = pa.array(layout.OPERATIONS)

    def columns(self, shapes: Sequence[Shape], rows: Table, message_subjects: Sequence[str]) -> list[pa.Array]:
        """The four columns. `message_subjects` are those of the logical messages among the rows, in order."""
        operation = rows[:, layout.OPERATION]
        used, shape = np.unique(rows[:, layout.OF_SHAPE], return_inverse=True)
        without_table = rows[:, layout.OF_SHAPE] == layout.NO_SHAPE
        # Of the shapes that are in this batch; a database may have thousands.
        named = [None if number == layout.NO_SHAPE else shapes[number] for number in used.tolist()]
        subjects = [text for each in named for text in (each.subjects if each else ("",) * SUBJECT_COUNT)]
        subject = shape * SUBJECT_COUNT + np.where(without_table, 0, operation)
        subject[without_table] = len(subjects) + np.arange(len(message_subjects))
        schemas = pa.array([each.relation.schema if each else None for each in named], pa.string())
        tables = pa.array([each.relation.name if each else None for each in named], pa.string())
        return [
            pa.array([*subjects, *message_subjects], pa.string()).take(pa.array(subject)),
            self._operations.take(pa.array(operation)),
            schemas.take(pa.array(shape)),
            tables.take(pa.array(shape)),
        ]


def number_columns(rows: Table) -> list[pa.Array]:
    """Transaction id and commit time; 0 stands for none."""
    xid, time = rows[:, layout.OF_XID], rows[:, layout.TIME]
    return [pa.array(xid, mask=xid == 0), pa.array(time + PG_EPOCH_UNIX_US, mask=time == 0).view(_TIME)]


def position_column(position: Bytes, rows: Table, timeline: str) -> pa.Array:
    """Texts of one length, each behind the timeline's; with a number behind it, if a change became several events."""
    ends = np.arange(1, len(rows) + 1, dtype=np.int64) * layout.POSITION_BYTES
    column = bytes_column(pa.string(), position, ends)
    parts = rows[:, layout.PART]
    if parts.any():
        column = pc.binary_join_element_wise(column, pa.array(PARTS).take(pa.array(parts)), "")
    return pc.binary_join_element_wise(pa.scalar(timeline), column, "") if timeline else column


def bytes_column(
    kind: pa.DataType, data: Bytes | memoryview | bytes, ends: Numbers, is_there: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Binary or string values that stand one behind the other."""
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    if len(ends) and ends[-1] > _MOST_OFFSET:
        raise DataError(
            f"a batch of {len(ends)} events takes {int(ends[-1])} bytes, more than Arrow can address",
            remedy="Read with a smaller batch_bytes; a single event must stay below 2 GiB.",
        )
    offsets[1:] = ends
    validity: Any = None if is_there is None else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(kind, len(ends), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
