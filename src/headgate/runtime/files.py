"""Files that are replaced whole: what a crash leaves behind is the old version or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

__all__ = ["replace_file", "sync_directory"]

_FOR_ALL = 0o644
_FOR_OWNER = 0o600


def replace_file(path: Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Put `data` in place of `path`, whole or not at all; makes its directory if need be.

    `durable` has it on disk when this returns; `private` lets nobody else read it, not even for a moment. Writers side
    by side do not disturb each other: the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        mode = _FOR_OWNER if private else _FOR_ALL
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    if durable:
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names of new, renamed and removed files durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
