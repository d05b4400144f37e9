"""The segments of a spool, read: what is in them, and ranges of rows as requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headgate.model import StateError
from headgate.spool.frames import Request, decode_request, frame_at, skip_frame
from headgate.spool.keys import Seen

__all__ = ["Scan", "first_row", "keys_path", "read_requests", "scan_segment", "segment_path", "segments"]


@dataclass(slots=True)
class Scan:
    """What is intact in a segment, from its beginning."""

    next_row: int
    intact_bytes: int = 0
    keys: list[tuple[bytes, Seen]] = field(default_factory=list)


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"{number:020d}.seg"


def keys_path(directory: Path, number: int) -> Path:
    return directory / f"{number:020d}.keys"


def segments(directory: Path) -> list[int]:
    """The numbers of the first rows of all segments, in order."""
    return sorted(int(path.stem) for path in directory.glob("*.seg"))


def first_row(directory: Path) -> int | None:
    """The first row that is still there; None if there is no segment."""
    return next(iter(segments(directory)), None)


def scan_segment(directory: Path, number: int) -> Scan:
    """Every frame from the beginning up to the first that is torn or does not follow."""
    path = segment_path(directory, number)
    data = path.read_bytes()
    scan = Scan(next_row=number)
    while (frame := frame_at(data, scan.intact_bytes)) and frame.first_row == scan.next_row:
        request = decode_request(data, frame, str(path))
        if request.key:
            scan.keys.append((request.key, Seen(request.received_us, frame.first_row, frame.rows)))
        scan.next_row += frame.rows
        scan.intact_bytes = frame.end
    return scan


def read_requests(directory: Path, start: int, end: int) -> Iterator[tuple[int, Request]]:
    """The requests with rows from `start` (inclusive) to `end` (exclusive), each with the number of its first row.

    The first and the last may have rows outside of the range.
    """
    numbers = segments(directory)
    wanted = start
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        if (following is not None and following <= wanted) or number >= end:
            continue
        own_end = end if following is None else min(end, following)
        for row, request in _requests(segment_path(directory, number), wanted, own_end):
            if row > wanted:
                break
            yield row, request
            wanted = row + len(request.bodies)
            if wanted >= end:
                return  # what lies behind may just be being written
    if wanted < end:
        raise StateError(
            f"the spool does not hold row {wanted}",
            where=str(directory),
            remedy="restore the files of the spool; or start anew: reset the pipeline",
        )


def _requests(path: Path, start: int, end: int) -> Iterator[tuple[int, Request]]:
    """Requests of one segment. Those before `start` are skipped without being looked into."""
    data = path.read_bytes()
    at = 0
    while frame := skip_frame(data, at):
        at = frame.end
        if frame.first_row >= end:
            return
        if frame.first_row + frame.rows <= start:
            continue
        if frame_at(data, frame.start) is None:
            return  # damaged; the caller sees that rows are missing
        yield frame.first_row, decode_request(data, frame, str(path))
