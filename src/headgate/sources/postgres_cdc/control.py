"""How the reader process and whoever uses its spool talk: small files, replaced whole.

<spool>/lock        held by the living reader with flock
<spool>/reader.json what the reader is doing, for Spark's source, status and metrics
<spool>/confirmed   the end LSN up to which everything is delivered; written by the pipeline
<spool>/advanced    the LSN the reader told PostgreSQL; says which rows are gone because they were confirmed
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["ReaderState", "SpoolControl"]


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A reader at one moment."""

    status: str = "starting"  # starting, streaming, waiting (spool full), reconnecting, error, stopped
    pid: int = 0
    system_id: str = ""
    database: str = ""
    server_version: int = 0
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
    error: dict[str, str] | None = None


class SpoolControl:
    """Reads and writes those files. Each has one writer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write_state(self, state: ReaderState) -> None:
        self._replace("reader.json", json.dumps(asdict(state)).encode())

    def read_state(self) -> ReaderState | None:
        data = self._read("reader.json")
        if data is None:
            return None
        fields: dict[str, Any] = json.loads(data)
        return ReaderState(**fields)

    def confirm(self, lsn: int) -> None:
        """Everything up to this end LSN is delivered and recorded. Never goes back."""
        if lsn > self.confirmed:
            self._replace("confirmed", b"%d" % lsn)

    @property
    def confirmed(self) -> int:
        return int(self._read("confirmed") or 0)

    def advance(self, lsn: int) -> None:
        """PostgreSQL has been told that this LSN is done with."""
        self._replace("advanced", b"%d" % lsn)

    @property
    def advanced(self) -> int:
        return int(self._read("advanced") or 0)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def _replace(self, name: str, data: bytes) -> None:
        """Whole or not at all. Not fsynced: after a power cut the slot itself knows what was confirmed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{name}.{os.getpid()}"
        temporary.write_bytes(data)
        temporary.replace(self.directory / name)
