"""Fencing: messages that are stored only if nobody else wrote to the stream in between.

A sequence alone is not enough when messages are sent ahead of their acknowledgements: after one foreign message the
first row is refused, but the second finds exactly the sequence it expects. So each row names its predecessor by
message id, and only the first one by sequence; whatever breaks the chain stops everything behind it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headgate.model.record import MESSAGE_ID

__all__ = ["Fence"]

_BY_SEQUENCE = b"Nats-Expected-Last-Sequence: "
_BY_ID = b"Nats-Expected-Last-Msg-Id: "
_MAX_DIGITS = 20


class Fence:
    """The header lines that tie rows together, block by block. `sequence` is where the stream ends before the next."""

    def __init__(self, expected_last_sequence: int) -> None:
        self.sequence = expected_last_sequence
        self._predecessor: bytes | None = None

    def lines(self, block: pa.RecordBatch) -> pa.Array:
        """One header line per row, with its end; the next call continues behind this block."""
        count, sequence = block.num_rows, self.sequence
        self.sequence += count
        ids = block.column(MESSAGE_ID)
        if self._predecessor is None:
            first = _lines(_BY_SEQUENCE, pa.array([b"%d" % sequence], pa.binary()))
        else:
            first = _lines(_BY_ID, pa.array([self._predecessor], pa.binary()))
        self._predecessor = ids[count - 1].as_py()
        return pa.concat_arrays([first, _lines(_BY_ID, ids.slice(0, count - 1))])

    @staticmethod
    def max_line_bytes(message_ids: pa.ChunkedArray) -> int:
        """The length of the longest line that a table of these ids can need."""
        longest_id = pc.max(pc.binary_length(message_ids.cast(pa.large_string()))).as_py() or 0
        return len(_BY_SEQUENCE) + max(_MAX_DIGITS, longest_id) + len(b"\r\n")


def _lines(name: bytes, values: pa.Array) -> pa.Array:
    pieces = (name, values, b"\r\n", b"")
    return pc.binary_join_element_wise(*(pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in pieces))
