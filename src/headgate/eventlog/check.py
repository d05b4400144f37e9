"""Looks through every byte of a log, and saves what can be saved of a damaged one.

    report = check_log(path)           # what there is, what is damaged, what is missing
    report = repair_log(path)          # the same, and then it is mended; nobody else may write

A repair keeps every sound record and its number. In the place of what is lost stands a record that says so, for as long
as the segment is kept, so that nobody who replays the log takes it for complete. A file that was changed is kept as it
was, as `damaged-evts-N`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headgate.eventlog.files import LogFiles, mapped
from headgate.eventlog.reader import LogReader
from headgate.eventlog.records import (
    CHECKED,
    LOST,
    TAKEN_DOWN,
    Damage,
    Header,
    all_headers,
    encode,
)
from headgate.model import StateError
from headgate.runtime.files import replace_file

__all__ = ["LogReport", "Look", "check_log", "look_at", "missing_of", "repair_log", "segments_of"]


@dataclass(slots=True)
class LogReport:
    """What a look through a log has found."""

    segments: int = 0
    records: int = 0
    unchecked: int = 0  # of them, those without a checksum, written by an older version
    taken_down: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.damage


@dataclass(frozen=True, slots=True)
class _Looked:
    """The records of a segment that are whole, and what lies between them."""

    start: int
    whole: list[Header]
    damage: list[Damage]


class Look(NamedTuple):
    """One segment, looked at."""

    bytes: int
    damage: list[Damage]


def check_log(path: Path) -> LogReport:
    """Read everything. The log may be written meanwhile: only what was durable at the beginning is looked at."""
    return _report(path, [])


def segments_of(path: Path) -> list[int]:
    """By which `look_at` knows them."""
    return LogFiles(path).starts()


def look_at(path: Path, start: int) -> Look | None:
    """One segment, as `check_log` sees it; None if it is no longer there."""
    files, report = LogFiles(path), LogReport()
    _check_is_log(files)
    with LogReader(path) as reader:
        last = reader.head_seq
    following = next((each for each in files.starts() if each > start), None)
    try:
        found = _look(files, start, last, following, report)
    except FileNotFoundError:
        return None
    return Look(report.bytes, found.damage)


def missing_of(path: Path) -> list[Damage]:
    """Segments that should be there."""
    files = LogFiles(path)
    return _missing(files, files.starts())


def repair_log(path: Path) -> LogReport:
    """Mend what is damaged; the report is of how it was."""
    files = LogFiles(path)
    _check_is_log(files)
    lock = files.lock()
    try:
        looked: list[_Looked] = []
        report = _report(path, looked)
        for segment in looked:
            if segment.damage:
                _rewrite(files, segment)
        for missing in files.missing(files.starts()):
            _write(files, missing.start, _lost(missing.start - 1, missing.last_seq))
        files.sync_directory()
    finally:
        lock.release()
    return report


def _report(path: Path, looked: list[_Looked]) -> LogReport:
    files, report = LogFiles(path), LogReport()
    _check_is_log(files)
    with LogReader(path) as reader:
        last = reader.head_seq
    starts = files.starts()
    for number, start in enumerate(starts):
        following = starts[number + 1] if number + 1 < len(starts) else None
        found = _look(files, start, last, following, report)
        looked.append(found)
        report.damage += found.damage
    report.damage += _missing(files, starts)
    return report


def _missing(files: LogFiles, starts: list[int]) -> list[Damage]:
    return [
        Damage(str(files.segment(each.start)), 0, each.size, each.start - 1, each.last_seq + 1)
        for each in files.missing(starts)
    ]


def _check_is_log(files: LogFiles) -> None:
    if not files.head_path.exists():
        raise StateError("there is no event log", where=str(files.path), remedy="give the directory of one: --path")


def _look(files: LogFiles, start: int, last: int, following: int | None, report: LogReport) -> _Looked:
    path = files.segment(start)
    whole: list[Header] = []
    damage: list[Damage] = []
    after, end = max(0, start - 1), 0
    with mapped(path) as data:
        for header in all_headers(data, start - 1):
            if header.seq > last:
                break
            if header.offset > end:
                damage.append(Damage(str(path), end, header.offset, after, header.seq))
            if header.kind == LOST:
                before = int.from_bytes(data[header.offset + 28 : header.payload_end], "little")
                damage.append(Damage(str(path), header.offset, header.end, before, header.seq + 1))
            whole.append(header)
            report.unchecked += not header.flags & CHECKED
            report.taken_down += bool(header.flags & TAKEN_DOWN)
            after, end = header.seq, header.end
        size = len(data)
    if end < size and (following is not None or after < last):
        damage.append(Damage(str(path), end, size, after, following or last + 1))
    report.segments += 1
    report.records += len(whole)
    report.bytes += size
    return _Looked(start, whole, damage)


def _rewrite(files: LogFiles, looked: _Looked) -> None:
    """The sound records of a segment, with a word about what is lost between them."""
    path = files.segment(looked.start)
    new = [each for each in looked.damage if not any(header.offset == each.offset for header in looked.whole)]
    if not new:
        return  # all of it is what an earlier repair has said
    parts: list[bytes] = []
    with mapped(path) as data:
        for header in looked.whole:
            parts += [_lost(each.after, each.before - 1) for each in new if each.before == header.seq]
            parts.append(bytes(data[header.offset : header.end]))
        last = looked.whole[-1].seq if looked.whole else max(0, looked.start - 1)
        parts += [_lost(each.after, each.before - 1) for each in new if each.before > last and each.after == last]
    kept = path.with_name(f"damaged-{path.name}")
    if not kept.exists():
        os.link(path, kept)
    _write(files, looked.start, b"".join(parts))


def _lost(after: int, upto: int) -> bytes:
    """A record in the place of those behind `after`, up to a number; nothing if there can have been none."""
    if upto <= after:
        return b""
    return b"".join(encode(upto, LOST, 0, after.to_bytes(8, "little")))


def _write(files: LogFiles, start: int, data: bytes) -> None:
    replace_file(files.segment(start), data)
