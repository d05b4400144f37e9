"""Takes records down: marks them so that readers pass them by, and then wipes what they said.

The marks are durable before the first payload is wiped: no reader ever sees half of one. Doing it again finishes what a
crash cut off.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from headgate.eventlog.files import LogFiles, mapped
from headgate.eventlog.head import Head
from headgate.eventlog.records import HEADER, TAKEN_DOWN, Header, Record, all_headers

__all__ = ["scrub_files"]

_FLAGS_BYTES = 4
_ZEROS = bytes(1 << 20)


def scrub_files(files: LogFiles, head: Head, unwanted: int | Callable[[Record], bool]) -> int:
    """Scrub every segment, up to what is durable now."""
    last_seq, count = head.seq, 0
    for start in files.starts():
        path = files.segment(start)
        try:
            with mapped(path) as data:
                found = [each for each in all_headers(data, start - 1) if each.seq <= last_seq]
                chosen = [each for each in found if _is_unwanted(data, each, unwanted)]
            if chosen:
                _wipe(path, chosen, head)
        except FileNotFoundError:
            continue  # removed in the meantime, for its age
        count += len(chosen)
    return count


def _is_unwanted(data: mmap | bytes, header: Header, unwanted: int | Callable[[Record], bool]) -> bool:
    if isinstance(unwanted, int):
        return header.uid == unwanted
    if header.flags & TAKEN_DOWN:
        return False
    payload = data[header.offset + HEADER.size : header.payload_end]
    return unwanted(Record(header.seq, header.kind, header.uid, payload))


def _wipe(path: Path, chosen: list[Header], head: Head) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for header in chosen:
            flags = header.flags | TAKEN_DOWN
            os.pwrite(descriptor, flags.to_bytes(_FLAGS_BYTES, "little"), header.offset)
        os.fsync(descriptor)
        head.scrubbed()
        for header in chosen:
            offset = header.offset + HEADER.size
            while offset < header.end:
                offset += os.pwrite(descriptor, _ZEROS[: header.end - offset], offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
