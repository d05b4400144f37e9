"""How the reader process and whoever uses its spool talk: small files, replaced whole.

<spool>/lock        held by the living reader with flock
<spool>/reader.json what the reader is doing, for Spark's source, status and metrics
<spool>/confirmed   timeline and end LSN up to which everything is delivered; written by the pipeline
<spool>/memory.json whose slot it is, and what the reader told PostgreSQL: see `continuity`
<spool>/delivered   there while a destination has changes of this slot, whatever we remember
<spool>/previous.json  the memory of before a reset: what does not follow on it is told to consumers
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.model import StateError
from headgate.postgres.continuity import Memory, TimelineHistory, WalPosition
from headgate.runtime.files import replace_file
from headgate.sources.postgres_cdc.serving import Served

__all__ = ["ReaderState", "SpoolControl"]

_MEMORY = "memory.json"
_PREVIOUS = "previous.json"
_DELIVERED = "delivered"


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader at one moment."""

    status: str = "starting"  # starting, streaming, waiting (spool full), reconnecting, error, stopped
    pid: int = 0
    origin: str = ""  # of message ids: system id, database, slot
    database: str = ""
    server_version: int = 0
    timeline: int = 0
    timeline_ends: tuple[tuple[int, int], ...] = ()  # earlier timelines, and where each ended
    began_lsn: int = 0  # from here on nobody but us has moved the slot
    start_lsn: int = 0  # where this run of the reader began; older transactions come from no spool
    received_lsn: int = 0
    server_lsn: int = 0
    confirmed_lsn: int = 0
    spool_end_lsn: int = 0
    spool_bytes: int = 0
    transactions_total: int = 0
    changes_total: int = 0
    reconnects_total: int = 0
    updated_at: float = 0.0
    served: Served | None = None  # where executors read that do not see the spool's files
    error: dict[str, str] | None = None

    @property
    def run(self) -> tuple[int, ...]:
        """What differs between two readers, and between two connections of one: each begins the spool anew."""
        return self.pid, self.timeline, self.start_lsn, self.reconnects_total

    @property
    def history(self) -> TimelineHistory:
        return TimelineHistory(self.timeline, self.timeline_ends)


class SpoolControl:
    """Reads and writes those files. Each has one writer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write_state(self, state: ReaderState) -> None:
        self._replace("reader.json", msgspec.json.encode(state))

    def read_state(self) -> ReaderState | None:
        data = self._read("reader.json")
        return None if data is None else msgspec.json.decode(data, type=ReaderState)

    def confirm(self, position: WalPosition) -> None:
        """Everything up to this end of a transaction is delivered and recorded. Never goes back."""
        if position > self.confirmed:
            self._replace("confirmed", b"%d %d" % position)

    @property
    def confirmed(self) -> WalPosition:
        timeline, _, lsn = (self._read("confirmed") or b"0 0").partition(b" ")
        return WalPosition(int(timeline), int(lsn))

    def remember(self, memory: Memory) -> None:
        """Note what PostgreSQL is about to be told. Durable: a memory behind the slot would look like a gap."""
        replace_file(self.directory / _MEMORY, msgspec.json.encode(memory))
        (self.directory / _PREVIOUS).unlink(missing_ok=True)

    def memory(self) -> Memory | None:
        return self._recall(_MEMORY)

    def previous(self) -> Memory | None:
        """What was known before a reset."""
        return self._recall(_PREVIOUS)

    def note_delivered(self, was_delivered: bool) -> None:
        """Whether a destination has changes that came from this slot."""
        if was_delivered:
            self._replace(_DELIVERED, b"")
        else:
            (self.directory / _DELIVERED).unlink(missing_ok=True)

    @property
    def was_delivered(self) -> bool:
        return (self.directory / _DELIVERED).exists()

    def forget(self) -> None:
        """Begin anew, but remember that there was something before: consumers must hear of what is missing."""
        memory = self.memory() or self.previous()
        shutil.rmtree(self.directory, ignore_errors=True)
        if memory is not None:
            replace_file(self.directory / _PREVIOUS, msgspec.json.encode(memory))

    def _recall(self, name: str) -> Memory | None:
        data = self._read(name)
        try:
            return None if data is None else msgspec.json.decode(data, type=Memory)
        except msgspec.DecodeError as error:
            raise StateError(
                f"what was remembered of the slot cannot be read: {error}",
                where=str(self.directory / name),
                remedy="restore the file from a backup, or start anew with: headgate reset PIPELINE",
            ) from None

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def _replace(self, name: str, data: bytes) -> None:
        """Whole or not at all. Not fsynced: after a power cut the slot itself knows what was confirmed."""
        replace_file(self.directory / name, data, durable=False)
