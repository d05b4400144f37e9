"""A block of rows as the bytes to send: HPUB frames, built column by column.

A frame is a row of constant and variable pieces. Arrow joins the columns of pieces in C++, and the data buffer of the
joined column is exactly what goes to the socket. `wire.nats.encode_hpub` is the readable version of one frame.

    HPUB <topic> <reply> <header size> <total size>\\r\\n
    NATS/1.0\\r\\nNats-Msg-Id: <message id>\\r\\n<more headers>\\r\\n<payload>\\r\\n
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.destinations.nats.rows import FIXED_HEADER_BYTES, HEADERS, MSG_ID_HEADER, byte_column
from headgate.model.record import MESSAGE_ID, PAYLOAD, TOPIC

__all__ = ["Frames", "Replies", "build_frames"]


@dataclass(frozen=True, slots=True)
class Frames:
    """`data[offsets[i]:offsets[i + 1]]` is the frame of row i."""

    data: memoryview
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def between(self, first: int, stop: int) -> memoryview:
        """The bytes of some consecutive frames."""
        return self.data[self.offsets[first] : self.offsets[stop]]


class Replies:
    """Reply subjects `<inbox>.<slot>`, where slots are numbered round a ring as large as the window.

    A message in flight owns its slot, so an answer belongs to one row; and since the names repeat, a slice of one
    table made beforehand serves every block. All names have the same length, which the scanner of answers relies on.
    """

    def __init__(self, inbox: str, slots: int, max_rows: int) -> None:
        self.slots = slots
        self.width = len(str(slots - 1))
        names = [f" {inbox}.{slot:0{self.width}d} ".encode() for slot in range(slots)]
        repeats = 1 + -(-max_rows // slots)
        self._table = pa.array((names * repeats)[: slots + max_rows], pa.binary())

    def column(self, index: int, count: int) -> pa.Array:
        """The replies, with a blank on either side, of `count` messages from the `index`-th of the connection."""
        return self._table.slice(index % self.slots, count)


def build_frames(block: pa.RecordBatch, replies: pa.Array, lines: pa.Array | None = None) -> Frames:
    """The frames of a block from `rows.blocks`. `lines` are further header lines, each with its end."""
    ids, payloads = block.column(MESSAGE_ID), block.column(PAYLOAD)
    more = [] if lines is None else [lines]
    more += [block.column(HEADERS)] if HEADERS in block.schema.names else []
    header_sizes = pc.add(pc.binary_length(ids), FIXED_HEADER_BYTES)
    for piece in more:
        header_sizes = pc.add(header_sizes, pc.binary_length(piece))
    total_sizes = pc.add(header_sizes, pc.binary_length(payloads))
    head = (_piece(b"HPUB "), block.column(TOPIC), replies, _digits(header_sizes), _piece(b" "), _digits(total_sizes))
    header = (_piece(b"\r\n" + MSG_ID_HEADER), ids, *_line_end(more), *more, _piece(b"\r\n" if more else b"\r\n\r\n"))
    joined = pc.binary_join_element_wise(*head, *header, payloads, _piece(b"\r\n"), _piece(b""))
    data, offsets = byte_column(joined)
    return Frames(data.data, offsets)


def _line_end(more: list[pa.Array]) -> tuple[pa.Scalar, ...]:
    return (_piece(b"\r\n"),) if more else ()


def _piece(constant: bytes) -> pa.Scalar:
    return pa.scalar(constant, pa.binary())


def _digits(numbers: pa.Array) -> pa.Array:
    return numbers.cast(pa.string()).cast(pa.binary())
