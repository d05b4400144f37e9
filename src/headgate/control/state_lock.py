"""The lock of a data directory: one process runs its pipelines at a time, whatever servers and ports it uses."""

from __future__ import annotations

from pathlib import Path

from headgate.embedded.directory import DataDirectory, explain_os_errors
from headgate.model import OccupiedError
from headgate.runtime.file_lock import FileLock

__all__ = ["StateLock"]


class StateLock:
    """Two processes with one state would deliver the same rows, and undo what the other has recorded."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._lock = FileLock(data_dir / "state.lock")

    def acquire(self) -> None:
        """Become the owner, or raise OccupiedError with the process that is."""
        with explain_os_errors(self._data_dir):
            DataDirectory(self._data_dir).make()
            is_ours = self._lock.acquire()
        if not is_ours:
            raise OccupiedError(
                f"process {self._lock.named() or 'unknown'} runs headgate on this data directory",
                where=str(self._data_dir),
                remedy="stop it first, or set another project.data_dir",
            )

    def release(self) -> None:
        """Let others own the state. Idempotent."""
        self._lock.release()

    def owner(self) -> int | None:
        """The process that has it, 0 if that is not known; None: nobody does."""
        return self._lock.owner()
