"""The lock of a data directory: one process runs its pipelines at a time, whatever servers and ports it uses."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from headgate.embedded.directory import DataDirectory, explain_os_errors
from headgate.model import OccupiedError

__all__ = ["StateLock"]


class StateLock:
    """Two processes with one state would deliver the same rows, and undo what the other has recorded."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / "state.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Become the owner; the kernel ends that with the process, however it ends."""
        with explain_os_errors(self._data_dir):
            DataDirectory(self._data_dir).make()
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            owner = self._named()
            raise OccupiedError(
                f"process {owner or 'unknown'} runs headgate on this data directory",
                where=str(self._data_dir),
                remedy="stop it first, or set another project.data_dir",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d" % os.getpid(), 0)
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        """Let others own the state. Idempotent."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor without freeing the lock, which other copies of it still hold."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def owner(self) -> int | None:
        """The process that has it; None if nobody does."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._named() or 0
        finally:
            os.close(descriptor)
        return None

    def _named(self) -> int | None:
        text = self._path.read_text(encoding="ascii", errors="replace").strip()
        return int(text) if text.isdigit() else None


_held: weakref.WeakSet[StateLock] = weakref.WeakSet()


def _forget_held() -> None:
    """A lock lives as long as any copy of its descriptor: a forked worker must not outlive its parent with it."""
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_held)
