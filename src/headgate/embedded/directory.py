"""The data directory of a stack: made, kept private, and owned by one process at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from headgate.model.errors import OccupiedError, StateError
from headgate.runtime.file_lock import FileLock

__all__ = ["DataDirectory", "explain_os_errors", "make_private"]

# Others may pass through, not look: PostgreSQL run by root lives below as an unprivileged user.
_PASSAGE = 0o711


def make_private(path: Path) -> None:
    """Make a directory that only its owner can enter; leave one that exists as it is."""
    if not path.is_dir():
        path.mkdir(mode=0o700)


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a data directory into one error with a remedy."""
    try:
        yield
    except OSError as error:
        reason = "it is not a directory" if path.exists() and not path.is_dir() else error.strerror or str(error)
        detail = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise StateError(
            f"the data directory {path} cannot be used: {reason}{detail}",
            remedy="Choose a directory that this user may write to, with all that is in it, on a disk with free space.",
        ) from error


class DataDirectory:
    """A stack's directory with `lock`, `stack.json`, `run/` and the servers' data."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.run = self.path / "run"
        self.record = self.path / "stack.json"
        self._lock = FileLock(self.path / "lock")

    def acquire(self) -> None:
        """Make the directory if need be and become its only owner."""
        self.make()
        if not self._lock.acquire():
            raise self._occupied()

    def release(self) -> None:
        """Let others own the directory."""
        self._lock.release()

    def make(self) -> None:
        """Make it if need be, so that servers of other users can pass through it."""
        if not self.path.is_dir():
            self.path.mkdir(parents=True)
            self.path.chmod(_PASSAGE)
        if not self.run.is_dir():
            self.run.mkdir()
            self.run.chmod(_PASSAGE)
        ignore = self.path / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")

    def _occupied(self) -> OccupiedError:
        pid = self._lock.named() or "unknown"
        return OccupiedError(
            f"the data directory {self.path} is in use by process {pid}",
            remedy=f"Stop process {pid}, or connect to the servers that it runs, or choose another data directory.",
        )
