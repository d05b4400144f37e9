"""The spool: committed transactions on disk, between PostgreSQL's stream and Spark's batches.

    <spool>/00000001.seg    pgoutput messages, each behind its length (u32), transaction after transaction
    <spool>/00000001.idx    one fixed-size record per transaction: where it lies and what it holds
    <spool>/relations       the Relation messages, each behind the LSN from which it is valid
    <spool>/bell            rung whenever more is visible, for tasks that follow

The spool is disposable. The slot moves only when delivery is confirmed, so whatever is lost here comes again from
PostgreSQL; nothing is fsynced, and a reader that starts begins with an empty spool. A transaction becomes visible by
its index record, which is written after its bytes.

Transactions are found by the end LSN of their commit: Spark's offsets are such LSNs, and a batch is a half-open range
`(start, end]` of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.model import StateError
from headgate.runtime.wake import Bell
from headgate.wire.pgoutput import PG_EPOCH_UNIX_US

__all__ = ["BELL", "INDEX_DTYPE", "Slice", "SpoolIndex", "SpoolWriter", "Transaction", "relations_before"]

INDEX_DTYPE = np.dtype(
    [
        ("end_lsn", "<u8"),
        ("commit_lsn", "<u8"),
        ("commit_time_us", "<i8"),  # microseconds since 2000-01-01, as PostgreSQL counts
        ("xid", "<u4"),
        ("changes", "<u4"),
        ("offset", "<u8"),
        ("length", "<u8"),
        ("rows_total", "<u8"),  # of this run of the reader, this transaction included
        ("bytes_total", "<u8"),
    ]
)

_Numbers: TypeAlias = npt.NDArray[np.uint64]

_RECORD = struct.Struct("<QQqIIQQQQ")  # INDEX_DTYPE, for one record

BELL = "bell"

_SEGMENT_BYTES = 64 * 1024 * 1024
_SEGMENT_TRANSACTIONS = 200_000
_RELATION_HEAD = struct.Struct("<QI")


class Transaction(NamedTuple):
    """What the index says of one transaction."""

    end_lsn: int
    commit_lsn: int
    commit_time_us: int
    xid: int
    changes: int


class Slice(NamedTuple):
    """Whole transactions that lie one behind the other in one segment."""

    path: str
    offset: int
    length: int


@dataclass
class _Segment:
    number: int
    last_end_lsn: int
    data_bytes: int
    transactions: int


class SpoolWriter:
    """Appends transactions and removes those that are confirmed. Owned by the reader process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        # Numbers are never used twice, so that nobody takes a new segment for the old one of that name.
        self._next_number = max((int(path.stem) for path in directory.glob("*.idx")), default=0) + 1
        for old in [*directory.glob("*.seg"), *directory.glob("*.idx"), directory / "relations"]:
            old.unlink(missing_ok=True)
        self._segments: list[_Segment] = []
        self._data: BinaryIO | None = None
        self._index: BinaryIO | None = None
        self._relations = (directory / "relations").open("ab", buffering=0)
        self._bell = Bell(directory / BELL)
        self._pending_index: list[bytes] = []
        self._rows_total = 0
        self._bytes_total = 0
        self.end_lsn = 0  # of the newest transaction in the spool
        self.before_flush: Callable[[], None] = lambda: None  # what must be on disk before anybody sees more
        self._rotate()

    @property
    def held_bytes(self) -> int:
        """Bytes of transactions that are not confirmed yet, in whole segments."""
        return sum(segment.data_bytes for segment in self._segments)

    def append(self, transaction: Transaction, chunks: Iterable[bytes | bytearray]) -> None:
        """Add one committed transaction; it becomes visible at the next `flush`."""
        assert self._data is not None
        segment = self._segments[-1]
        offset = segment.data_bytes
        length = 0
        for chunk in chunks:
            self._data.write(chunk)
            length += len(chunk)
        segment.data_bytes += length
        segment.transactions += 1
        segment.last_end_lsn = self.end_lsn = transaction.end_lsn
        self._rows_total += transaction.changes
        self._bytes_total += length
        self._pending_index.append(_RECORD.pack(*transaction, offset, length, self._rows_total, self._bytes_total))

    def add_relation(self, valid_from_lsn: int, message: bytes) -> None:
        """Remember a Relation message for ranges that begin at or after the LSN."""
        self._relations.write(_RELATION_HEAD.pack(valid_from_lsn, len(message)) + message)

    def flush(self) -> None:
        """Make what was appended visible: bytes first, then the index."""
        if not self._pending_index:
            return
        self.before_flush()
        assert self._data is not None
        assert self._index is not None
        self._data.flush()
        self._index.write(b"".join(self._pending_index))
        self._index.flush()
        self._pending_index.clear()
        self._bell.ring()
        segment = self._segments[-1]
        if segment.data_bytes >= _SEGMENT_BYTES or segment.transactions >= _SEGMENT_TRANSACTIONS:
            self._rotate()

    def release(self, confirmed_lsn: int) -> None:
        """Delete segments all of whose transactions are confirmed. The segment being written stays."""
        while len(self._segments) > 1 and self._segments[0].last_end_lsn <= confirmed_lsn:
            number = self._segments.pop(0).number
            _index_path(self.directory, number).unlink(missing_ok=True)
            _data_path(self.directory, number).unlink(missing_ok=True)
        current = self._segments[-1]
        if current.transactions and current.last_end_lsn <= confirmed_lsn and not self._pending_index:
            self._rotate()
            self.release(confirmed_lsn)

    def _rotate(self) -> None:
        self._close_segment()
        number = self._next_number
        self._next_number += 1
        self._segments.append(_Segment(number, self.end_lsn, 0, 0))
        self._data = _data_path(self.directory, number).open("wb", buffering=1024 * 1024)
        self._index = _index_path(self.directory, number).open("wb")

    def _close_segment(self) -> None:
        for file in (self._data, self._index):
            if file is not None:
                file.close()

    def close(self) -> None:
        self.flush()
        self._close_segment()
        self._relations.close()
        self._bell.close()


class SpoolIndex:
    """What is in the spool, as another process sees it. `refresh` reads only what is new."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: npt.NDArray[np.void] = np.empty(0, dtype=INDEX_DTYPE)
        self._segment_of: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._read: dict[int, int] = {}  # bytes taken from each index file

    def refresh(self) -> None:
        """Take in new transactions, forget those whose segment is gone."""
        present = sorted(int(path.stem) for path in self._directory.glob("*.idx"))
        gone = [number for number in self._read if number not in present]
        if gone:
            keep = ~np.isin(self._segment_of, gone)
            self._records, self._segment_of = self._records[keep], self._segment_of[keep]
            for number in gone:
                del self._read[number]
        for number in present:
            self._take(number)

    def _take(self, number: int) -> None:
        done = self._read.get(number, 0)
        try:
            with _index_path(self._directory, number).open("rb") as file:
                file.seek(done)
                data = file.read()
        except FileNotFoundError:
            return  # released meanwhile
        whole = len(data) - len(data) % INDEX_DTYPE.itemsize
        self._read[number] = done + whole
        if whole:
            fresh = np.frombuffer(data[:whole], dtype=INDEX_DTYPE)
            self._records = np.concatenate([self._records, fresh])
            self._segment_of = np.concatenate([self._segment_of, np.full(len(fresh), number, dtype=np.int64)])

    @property
    def end_lsn(self) -> int:
        return int(self._records["end_lsn"][-1]) if len(self._records) else 0

    def end_within(self, start_lsn: int, max_rows: int | None, max_bytes: int | None) -> int:
        """The last end LSN reachable from `start_lsn` within the limits; at least one transaction, if there is one."""
        ends = self._records["end_lsn"]
        first = int(np.searchsorted(ends, start_lsn, side="right"))
        if first == len(ends):
            return start_lsn
        last = len(ends) - 1
        for column, limit in (("rows_total", max_rows), ("bytes_total", max_bytes)):
            if limit is not None:
                own = int(self._records["changes" if column == "rows_total" else "length"][first])
                before = int(self._records[column][first]) - own
                fitting = int(np.searchsorted(self._records[column], before + limit, side="right")) - 1
                last = min(last, max(first, fitting))
        return int(ends[last])

    def end_before(self, lsn: int) -> int:
        """The newest end LSN that is not behind `lsn`; 0 if there is none."""
        before = int(np.searchsorted(self._records["end_lsn"], lsn, side="right"))
        return int(self._records["end_lsn"][before - 1]) if before else 0

    def transactions(self, start_lsn: int, end_lsn: int) -> Iterator[tuple[Path, _Numbers, _Numbers]]:
        """The transactions of `(start_lsn, end_lsn]` by segment: its file, where each begins in it, their end LSNs."""
        ends = self._records["end_lsn"]
        first, last = (int(np.searchsorted(ends, lsn, side="right")) for lsn in (start_lsn, end_lsn))
        records, segments = self._records[first:last], self._segment_of[first:last]
        for number in np.unique(segments):
            of_it = records[segments == number]
            yield _data_path(self._directory, int(number)), of_it["offset"], of_it["end_lsn"]

    def rows_after(self, lsn: int) -> int:
        """How many changes lie behind `lsn`: the lag in rows."""
        first = int(np.searchsorted(self._records["end_lsn"], lsn, side="right"))
        return int(self._records["changes"][first:].sum())

    def committed_at(self, lsn: int) -> float | None:
        """When the first transaction behind `lsn` was committed, in seconds since the epoch; None if there is none."""
        first = int(np.searchsorted(self._records["end_lsn"], lsn, side="right"))
        if first == len(self._records):
            return None
        return (int(self._records["commit_time_us"][first]) + PG_EPOCH_UNIX_US) / 1e6

    def slices(self, start_lsn: int, end_lsn: int) -> list[Slice]:
        """Where the transactions of `(start_lsn, end_lsn]` lie."""
        ends = self._records["end_lsn"]
        first = int(np.searchsorted(ends, start_lsn, side="right"))
        last = int(np.searchsorted(ends, end_lsn, side="right"))
        if last == first:
            return []
        if int(ends[last - 1]) != end_lsn:
            raise StateError(
                f"the spool does not hold the transaction that ends at LSN {end_lsn:X}",
                where=str(self._directory),
                remedy="the reader has begun anew; the batch is tried again once it has caught up",
            )
        slices: list[Slice] = []
        for number in np.unique(self._segment_of[first:last]):
            rows = self._records[first:last][self._segment_of[first:last] == number]
            begin = int(rows["offset"][0])
            length = int(rows["offset"][-1]) + int(rows["length"][-1]) - begin
            slices.append(Slice(str(_data_path(self._directory, int(number))), begin, length))
        return slices


def relations_before(directory: Path, lsn: int) -> list[bytes]:
    """The Relation messages that are valid for a range beginning at `lsn`, oldest first."""
    try:
        data = (directory / "relations").read_bytes()
    except FileNotFoundError:
        return []
    found: list[bytes] = []
    position = 0
    while position + _RELATION_HEAD.size <= len(data):
        valid_from, length = _RELATION_HEAD.unpack_from(data, position)
        position += _RELATION_HEAD.size
        if position + length > len(data):
            break
        if valid_from <= lsn:
            found.append(data[position : position + length])
        position += length
    return found


def _data_path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.seg"


def _index_path(directory: Path, number: int) -> Path:
    return directory / f"{number:08d}.idx"
