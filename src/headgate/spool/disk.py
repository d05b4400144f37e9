"""What the spool asks of the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.model import CapacityError, OccupiedError
from headgate.runtime.file_lock import FileLock

__all__ = ["refused_by_disk", "take_lock", "write_synced"]


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def refused_by_disk(directory: Path) -> Iterator[None]:
    """Whatever the disk refuses, as an error that passes when there is room again."""
    try:
        yield
    except OSError as error:
        raise CapacityError(
            f"the spool cannot be written: {error.strerror or error}",
            where=str(directory),
            remedy="make room on the disk; the sender tries again",
        ) from None


def take_lock(directory: Path) -> FileLock:
    """Become the one writer of a spool."""
    lock = FileLock(directory / "lock")
    if not lock.acquire():
        raise OccupiedError(
            "another server fills this spool",
            where=str(directory),
            remedy="one pipeline reads a webhook source; stop the other one, or give this one a source of its own",
        )
    return lock
