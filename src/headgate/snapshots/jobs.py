"""A snapshot as a job: what was asked for, how far it is, how it ended. Unfinished ones survive a crash."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from headgate.model import InternalError
from headgate.runtime.disk import disk_error
from headgate.runtime.files import replace_file
from headgate.wire.envelope import subject_token

__all__ = ["Job", "Journal", "new_id", "table_token"]

State = Literal["queued", "running", "done", "failed", "cancelled"]
_ENDED = ("done", "failed", "cancelled")


class Job(msgspec.Struct):
    """One snapshot of one table."""

    id: str
    schema: str
    table: str
    method: str
    chunk_rows: int
    state: State = "queued"
    requested_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    rows: int = 0
    chunks: int = 0
    bytes: int = 0
    rows_expected: int = 0  # what PostgreSQL's statistics say; 0 if they say nothing
    lsn: str = ""
    relation_id: int = 0
    schema_version: str = ""
    error: dict[str, Any] | None = None
    replaces: list[str] = []

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def percent(self) -> float | None:
        """How much is done, as far as that can be known."""
        if self.state == "done":
            return 100.0
        return min(99.9, 100.0 * self.rows / self.rows_expected) if self.rows_expected > 0 else None

    @property
    def rows_per_second(self) -> float:
        until = self.finished_at or time.time()
        return self.rows / (until - self.started_at) if self.started_at and until > self.started_at else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For status and HTTP."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields | {"percent": self.percent, "rows_per_second": round(self.rows_per_second, 1)}


class Journal:
    """The jobs that are not done yet, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Job]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Job])
        except FileNotFoundError:
            return []

    def write(self, jobs: list[Job]) -> None:
        try:
            replace_file(self._path, msgspec.json.encode([job for job in jobs if not job.ended]))
        except OSError as error:
            raise disk_error(error, str(self._path)) or InternalError(
                f"the snapshots that are asked for cannot be written down: {error}",
                where=str(self._path),
                remedy="look at the disk; it is tried again",
            ) from None


def new_id() -> str:
    """Unique, one token of a subject, and later ones sort behind earlier ones."""
    return f"s{time.time_ns() // 1_000_000:011x}{secrets.token_hex(2)}"


def table_token(schema: str, table: str) -> str:
    """A table's place in the subjects of snapshots."""
    return subject_token(table) if schema == "public" else f"{subject_token(schema)}.{subject_token(table)}"
