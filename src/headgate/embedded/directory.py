"""The data directory of a stack: made, kept private, and owned by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import weakref
from collections.abc import Iterator
from pathlib import Path

from headgate.model.errors import OccupiedError, StateError

__all__ = ["DataDirectory", "explain_os_errors", "make_private", "write_private"]

# Others may pass through, not look: PostgreSQL run by root lives below as an unprivileged user.
_PASSAGE = 0o711


def make_private(path: Path) -> None:
    """Make a directory that only its owner can enter; leave one that exists as it is."""
    if not path.is_dir():
        path.mkdir(mode=0o700)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step; nobody else can read it, not even for a moment."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


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
        self._lock = self.path / "lock"
        self._lock_fd: int | None = None

    def acquire(self) -> None:
        """Make the directory if need be and become its only owner."""
        self.make()
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise self._occupied() from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._lock_fd = descriptor
        _owned.add(self)

    def release(self) -> None:
        """Let others own the directory."""
        if self._lock_fd is not None:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            self._forget()

    def _forget(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

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
        pid = self._lock.read_text().strip() or "unknown"
        return OccupiedError(
            f"the data directory {self.path} is in use by process {pid}",
            remedy=f"Stop process {pid}, or connect to the servers that it runs, or choose another data directory.",
        )


_owned: weakref.WeakSet[DataDirectory] = weakref.WeakSet()


def _forget_owned() -> None:
    """A flock lives as long as any copy of its descriptor: a forked worker must not outlive its parent with it."""
    for directory in list(_owned):
        directory._forget()


os.register_at_fork(after_in_child=_forget_owned)
