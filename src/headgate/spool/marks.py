"""The small files of a spool that say how far things are.

    <spool>/id         made once; part of every message id, so that the rows of a new spool are new rows
    <spool>/tail       how many rows are durable; written by the server after every fsync
    <spool>/delivered  rows below this number are delivered; written by whoever reads

Neither mark is fsynced: after a power cut it may be too low, never too high. A low `tail` is set right by the server's
start, a low `delivered` keeps rows a little longer.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from pathlib import Path

from headgate.model import StateError
from headgate.runtime.files import sync_directory
from headgate.spool.disk import refused_by_disk, write_synced

__all__ = ["Marks"]

_MARK = struct.Struct("<QI")
_TRIES = 100


class Marks:
    """Reads and writes those files. Each has one writer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def spool_id(self) -> str:
        """The id of this spool, made at the first call."""
        path = self.directory / "id"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary = self.directory / f".id.{secrets.token_hex(4)}"
            write_synced(temporary, secrets.token_hex(6).encode())
            try:
                os.link(temporary, path)  # the first one wins
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            sync_directory(self.directory)
        text = path.read_text(encoding="ascii", errors="replace").strip()
        if not text.isalnum():
            raise StateError("the spool's id cannot be read", where=str(path), remedy="restore the file")
        return text

    def read_tail(self) -> int | None:
        """How many rows are durable; None if no server has run yet."""
        return self._read("tail")

    def write_tail(self, rows: int) -> None:
        self._write("tail", rows)

    def delivered(self) -> int:
        return self._read("delivered") or 0

    def deliver(self, row: int) -> None:
        """Everything below this row is delivered and recorded. Never goes back."""
        if row > self.delivered():
            with refused_by_disk(self.directory):
                self._write("delivered", row)

    def prepare(self) -> None:
        """Make the mark of deliveries while there is room: a disk that is full must not keep rows from being let go."""
        if self._read("delivered") is None:
            self._write("delivered", 0)

    def _read(self, name: str) -> int | None:
        """A mark; read again if it was just being written."""
        for _ in range(_TRIES):
            try:
                data = (self.directory / name).read_bytes()
            except FileNotFoundError:
                return None
            if len(data) == _MARK.size:
                row, crc = _MARK.unpack(data)
                if crc == zlib.crc32(data[:8]):
                    return int(row)
        return None

    def _write(self, name: str, row: int) -> None:
        """In place, without a new file: this happens after every fsync, and nobody else writes it."""
        data = row.to_bytes(8, "little")
        descriptor = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, _MARK.pack(row, zlib.crc32(data)), 0)
        finally:
            os.close(descriptor)
