"""A lock that one process holds, and that the kernel frees the moment this process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path

__all__ = ["FileLock"]

_RETRY_S = 0.02
_LOOKED_AT_S = 0.5  # whoever asks for the owner holds it for an instant, too


class FileLock:
    """An exclusive `flock` on a file, which names the process that holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, wait_s: float = _LOOKED_AT_S) -> bool:
        """Take the lock; False if another process (or another FileLock) still holds it after `wait_s`."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        while not _is_free(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return False
            time.sleep(_RETRY_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d" % os.getpid(), 0)
        self._descriptor = descriptor
        _held.add(self)
        return True

    def release(self) -> None:
        """Let others take it. Idempotent."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._forget()

    def owner(self) -> int | None:
        """The id of the process that holds it, 0 if that is not known; None: nobody does."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return None if _is_free(descriptor, fcntl.LOCK_SH) else self.named()
        finally:
            os.close(descriptor)

    def named(self) -> int:
        """The process that wrote its id into the file last; 0 if none did."""
        text = self.path.read_text(encoding="ascii", errors="replace").strip()
        return int(text) if text.isdigit() else 0

    def _forget(self) -> None:
        """Close the descriptor without freeing the lock, which other copies of it still hold."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _is_free(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_held() -> None:
    """A lock lives as long as any copy of its descriptor: a forked worker must not outlive its parent with it."""
    for lock in list(_held):
        lock._forget()


os.register_at_fork(after_in_child=_forget_held)
