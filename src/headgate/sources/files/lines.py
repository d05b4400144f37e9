"""A range of a file as rows: one for each line, made by whole columns."""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.model import DataError, StateError
from headgate.model.record import OP, POSITION
from headgate.sources.files.index import Range
from headgate.sources.files.scan import find_by_id, head_of, is_file, unreadable
from headgate.sources.random.generator import position_column

__all__ = ["FILE", "OFFSET", "SCHEMA", "read_range"]

_log = logging.getLogger(__name__)

FILE, OFFSET = "_file", "_offset"
SCHEMA = f"value string, {POSITION} string, {FILE} string, {OFFSET} bigint, {OP} string"
_NAMES = ["value", POSITION, FILE, OFFSET, OP]
_CHUNK = 4 << 20
_ATTEMPTS = 3  # a file may be renamed between finding and opening it


def read_range(range_: Range, *, skip_header: bool, fail_on_data_loss: bool) -> Iterator[pa.RecordBatch]:
    """The lines of a range, each with its place. Bytes that are no UTF-8 become the replacement character."""
    with _opened(range_, fail_on_data_loss) as file:
        if file is None:
            return
        offset, count = range_.start, 0
        for text in _whole_lines(file, range_):
            values, starts = _split(text)
            skipped = 1 if skip_header and offset == 0 else 0
            if len(values) > skipped:
                yield _batch(range_, values[skipped:], offset + starts[skipped:], count + skipped)
            offset += len(text)
            count += len(values)


def _batch(range_: Range, values: pa.Array, offsets: np.ndarray, count: int) -> pa.RecordBatch:
    rows = len(values)
    path, op = (pa.repeat(pa.scalar(text), rows) for text in (range_.path, "read"))
    return pa.RecordBatch.from_arrays([values, _positions(range_, offsets, count), path, pa.array(offsets), op], _NAMES)


def _positions(range_: Range, offsets: np.ndarray, count: int) -> pa.Array:
    """The place of a line's first byte in the stream; in a packed file that of the file, and the line's number."""
    if not range_.is_packed:
        return position_column((offsets - range_.start + range_.base).astype(np.uint64))
    base = position_column(np.full(len(offsets), range_.base, np.uint64))
    numbers = position_column(np.arange(count, count + len(offsets), dtype=np.uint64))
    major, ordinal = pc.utf8_slice_codeunits(base, 0, 17), pc.utf8_slice_codeunits(numbers, 8, 16)
    return pc.binary_join_element_wise(major, ordinal, "")


def _split(text: bytes) -> tuple[pa.Array, np.ndarray]:
    """Lines without their ends, and where each begins."""
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], newlines + 1]).astype(np.int64)
    if text.endswith(b"\n"):
        starts = starts[:-1]
    values = pc.split_pattern(pa.array([_utf8(text.removesuffix(b"\n"))], pa.string()), "\n").flatten()
    if b"\r" in text:
        values = pc.replace_substring_regex(values, r"\r$", "")
    return values, starts


def _utf8(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode(errors="replace").encode()
    return text


def _whole_lines(file: BinaryIO, range_: Range) -> Iterator[bytes]:
    """The range in pieces that end with a line; the last one may end without a newline."""
    rest = b""
    for piece in _pieces(file, range_):
        lines, newline, tail = piece.rpartition(b"\n")
        if newline:
            yield b"".join((rest, lines, newline))
            rest = tail
        else:
            rest += piece
    if rest:
        yield rest


def _pieces(file: BinaryIO, range_: Range) -> Iterator[bytes]:
    if range_.is_packed:
        yield from _unpacked(file, range_.path)
        return
    file.seek(range_.start)
    left = range_.end - range_.start
    while left > 0:
        piece = file.read(min(_CHUNK, left))
        if not piece:
            raise _lost(range_, "was cut off while it was read")
        left -= len(piece)
        yield piece


def _unpacked(file: BinaryIO, path: str) -> Iterator[bytes]:
    file.seek(0)
    try:
        with gzip.open(file) as unpacked:
            while piece := unpacked.read(_CHUNK):
                yield piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"the gzip file is damaged or not complete: {error}",
            where=path,
            remedy="move complete files into the directory, or set finishedAfterMs; remove a damaged one",
        ) from None


@contextmanager
def _opened(range_: Range, fail_on_data_loss: bool) -> Iterator[BinaryIO | None]:
    """The file of the range, wherever it is now; None if it is gone and that is accepted."""
    file = _open(range_)
    if file is None:
        problem = "is gone"
    else:
        with file:
            if _is_unchanged(file, range_):
                yield file
                return
        problem = "was truncated or replaced"
    if fail_on_data_loss:
        raise _lost(range_, problem)
    _log.warning(
        "lines are lost: the file %s before it was read",
        problem,
        extra={"file": range_.path, "bytes": range_.end - range_.start},
    )
    yield None


def _open(range_: Range) -> BinaryIO | None:
    for _ in range(_ATTEMPTS):
        found = find_by_id(range_.file_id, range_.path)
        if found is None:
            continue
        try:
            file = Path(found.path).open("rb")  # noqa: SIM115 - the caller closes it
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(error, found.path) from None
        if is_file(file, range_.file_id):
            return file
        file.close()
    return None


def _is_unchanged(file: BinaryIO, range_: Range) -> bool:
    return file.seek(0, os.SEEK_END) >= range_.end and head_of(file, range_.head_bytes) == range_.head


def _lost(range_: Range, problem: str) -> StateError:
    return StateError(
        f"the file {problem}; bytes {range_.start} to {range_.end} were to be read",
        where=range_.path,
        remedy="put the file back, or set failOnDataLoss to false to go on without its lines",
    )
