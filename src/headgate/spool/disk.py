"""What the spool asks of the disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.model import CapacityError, OccupiedError

__all__ = ["refused_by_disk", "sync_directory", "take_lock", "write_synced"]


def sync_directory(directory: Path) -> None:
    """Make names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def take_lock(directory: Path) -> int:
    """A lock that the kernel frees the moment this process ends, however it ends."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise OccupiedError(
            "another server fills this spool",
            where=str(directory),
            remedy="one pipeline reads a webhook source; stop the other one, or give this one a source of its own",
        ) from None
    return descriptor
