"""Rows that were refused, kept with their reason until somebody sends them on or throws them away.

One SQLite file in the pipeline's directory. It is written before the batch counts as delivered, and a batch that comes
again finds its rows there already. Any process may read it while the pipeline runs.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter, Selection
from headgate.model.errors import CapacityError, StateError
from headgate.runtime.disk import disk_error
from headgate.runtime.sqlite import bring_up_to_date

__all__ = ["DEAD_LETTERS", "DeadLetters"]

DEAD_LETTERS = "dead_letters.sqlite"  # in the directory of a pipeline

_FIRST = """
CREATE TABLE IF NOT EXISTS dead_letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    destination TEXT NOT NULL,
    stream TEXT NOT NULL,
    topic TEXT NOT NULL,
    reason TEXT NOT NULL,
    error TEXT NOT NULL,
    position TEXT NOT NULL,
    partition_key BLOB,
    partition INTEGER,
    payload BLOB,
    epoch INTEGER NOT NULL,
    batch_id INTEGER NOT NULL,
    at REAL NOT NULL,
    UNIQUE (message_id, destination, stream, topic)
)
"""
_SCRIPTS = (_FIRST,)  # files keep their checksums: not a blank of one that was released may change
_COLUMNS = (
    "message_id, destination, stream, topic, reason, error, position, partition_key, partition, payload, epoch, "
    "batch_id, at"
)


class DeadLetters:
    """The rows of one pipeline. Opens the file for every call, so any thread and process may use it."""

    def __init__(self, path: Path, *, max_rows: int = 1_000_000, max_bytes: int = 1 << 30) -> None:
        self.path = path
        self._max_rows = max_rows
        self._max_bytes = max_bytes

    def add(self, letters: Sequence[DeadLetter]) -> int:
        """Keep rows durably; those that are kept already are left as they are. Returns how many are new."""
        with self._open(create=True) as db:
            before = db.total_changes
            marks = ", ".join("?" * (_COLUMNS.count(",") + 1))
            db.executemany(f"INSERT OR IGNORE INTO dead_letters ({_COLUMNS}) VALUES ({marks})", map(_row, letters))  # noqa: S608
            new = db.total_changes - before
            if new:  # a batch that comes again always fits
                self._check_room(db, new)
            return new

    def _check_room(self, db: sqlite3.Connection, new: int) -> None:
        """Inside the transaction, which an error takes back."""
        rows, size = db.execute("SELECT count(*), coalesce(sum(length(payload)), 0) FROM dead_letters").fetchone()
        if rows > self._max_rows or size > self._max_bytes:
            raise CapacityError(
                f"{rows - new} dead letters are kept, and {new} more do not fit: {rows} rows of {size} bytes",
                where=str(self.path),
                remedy="headgate dlq replay or headgate dlq purge, or raise dead_letters.max_rows and max_bytes",
            )

    def list(
        self, *, reason: str | None = None, topic: str | None = None, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        """Rows in the order in which they were refused."""
        with self._open() as db:
            found = db.execute(
                f"SELECT number, {_COLUMNS} FROM dead_letters WHERE number > :after"  # noqa: S608
                " AND (:reason IS NULL OR reason = :reason) AND (:topic IS NULL OR topic = :topic)"
                " ORDER BY number LIMIT :limit",
                {"after": after, "reason": reason, "topic": topic, "limit": limit},
            )
            return [_letter(row) for row in found]

    def get(self, number: int) -> DeadLetter | None:
        found = self.list(after=number - 1, limit=1)
        return found[0] if found and found[0].number == number else None

    def remove(self, numbers: Iterable[int]) -> int:
        """Throw rows away; returns how many there were."""
        with self._open() as db:
            before = db.total_changes
            db.executemany("DELETE FROM dead_letters WHERE number = ?", ((number,) for number in numbers))
            return db.total_changes - before

    def purge(self, chosen: Selection) -> int:
        """Throw dead letters away; returns how many."""
        if chosen.numbers:
            return self.remove(chosen.numbers)
        with self._open() as db:
            before = db.total_changes
            db.execute("DELETE FROM dead_letters WHERE :reason IS NULL OR reason = :reason", {"reason": chosen.reason})
            return db.total_changes - before

    def counts(self) -> dict[str, int]:
        """How many rows are kept for each reason."""
        with self._open() as db:
            return dict(db.execute("SELECT reason, count(*) FROM dead_letters GROUP BY reason ORDER BY reason"))

    @contextmanager
    def _open(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction. What was never written reads as empty."""
        try:
            if create and not self.path.exists():
                _create(self.path)
            where = str(self.path) if self.path.exists() else ":memory:"
            db = sqlite3.connect(where, timeout=30)
            try:
                _bring_up_to_date(db, where)
                db.execute("PRAGMA synchronous = FULL")
                with db:
                    yield db
            finally:
                db.close()
        except OSError as error:
            raise disk_error(error, str(self.path)) or error from None
        except sqlite3.DatabaseError as error:
            kind = CapacityError if _primary_code(error) == sqlite3.SQLITE_FULL else StateError
            raise kind(
                f"the dead letters cannot be read or written: {error}",
                where=str(self.path),
                remedy="free disk space, or move the file away; it holds rows that were not delivered",
            ) from None


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 for an error of the module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _create(path: Path) -> None:
    """Make an empty file beside its place and put it there whole: SQLite does not wait its turn to change the mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as beside:
        made = Path(beside) / path.name
        db = sqlite3.connect(made)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            _bring_up_to_date(db, str(path))
        finally:
            db.close()
        with suppress(FileExistsError):  # somebody was first
            path.hardlink_to(made)


def _bring_up_to_date(db: sqlite3.Connection, where: str) -> None:
    bring_up_to_date(db, _SCRIPTS, what="the dead letters", where=where)


def _row(letter: DeadLetter) -> tuple[Any, ...]:
    return (
        letter.message_id,
        letter.destination,
        letter.wanted.stream,
        letter.wanted.topic,
        letter.reason,
        letter.error,
        letter.position,
        letter.partition_key,
        letter.partition,
        letter.payload,
        letter.epoch,
        letter.batch_id,
        letter.at or time.time(),
    )


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    number, message_id, destination, stream, topic, reason, error, position, key, partition, payload, *rest = row
    epoch, batch_id, at = rest
    wanted = Address(stream, topic)
    return DeadLetter(
        message_id, destination, wanted, reason, position, payload, error, key, partition, epoch, batch_id, at, number
    )
