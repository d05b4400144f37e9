"""Open transactions that PostgreSQL streams before they commit, each waiting on disk for its end.

Every message carries the id of its subtransaction. When that is rolled back its messages are dropped; when the whole
transaction commits, what is left becomes an ordinary transaction of the spool.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["StreamedTransactions"]

_HEAD = struct.Struct("<II")  # subtransaction, length
_DESCRIPTIONS = frozenset(b"RY")  # Relation and Type messages
_MEMORY_BYTES = 256 * 1024  # per transaction; beyond, it goes to its file
_READ_BYTES = 1024 * 1024


class _Open:
    """One transaction on its way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer = bytearray()
        self._file: BinaryIO | None = None
        self.aborted: set[int] = set()

    def add(self, subxid: int, message: bytes) -> None:
        self._buffer += _HEAD.pack(subxid, len(message))
        self._buffer += message
        if len(self._buffer) > _MEMORY_BYTES:
            if self._file is None:
                self._file = self._path.open("wb")
            self._file.write(self._buffer)
            self._buffer.clear()

    def messages(self) -> Iterator[bytes]:
        """What was not rolled back, in order. Descriptions stay: the server sends them once per transaction."""
        for subxid, message in self._all():
            if subxid not in self.aborted or message[0] in _DESCRIPTIONS:
                yield message

    def _all(self) -> Iterator[tuple[int, bytes]]:
        if self._file is None:
            yield from _parse(bytes(self._buffer))
            return
        self._file.write(self._buffer)
        self._buffer.clear()
        self._file.flush()
        rest = b""
        with self._path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                data = rest + data
                used = 0
                for subxid, message in _parse(data):
                    yield subxid, message
                    used += _HEAD.size + len(message)
                rest = data[used:]

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


class StreamedTransactions:
    """All open streamed transactions of one connection."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[int, _Open] = {}
        for old in directory.glob("*.open"):
            old.unlink()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, xid: int, subxid: int, message: bytes) -> None:
        transaction = self._open.get(xid)
        if transaction is None:
            transaction = self._open[xid] = _Open(self._directory / f"{xid}.open")
        transaction.add(subxid, message)

    def abort(self, xid: int, subxid: int) -> None:
        """The end of a subtransaction, or of the whole if both ids are the same."""
        if xid == subxid:
            self.discard(xid)
        elif xid in self._open:
            self._open[xid].aborted.add(subxid)

    def discard(self, xid: int) -> None:
        transaction = self._open.pop(xid, None)
        if transaction is not None:
            transaction.discard()

    def discard_all(self) -> None:
        for xid in list(self._open):
            self.discard(xid)

    def messages(self, xid: int) -> Iterator[bytes]:
        """The messages of a transaction that has just committed."""
        transaction = self._open.get(xid)
        return transaction.messages() if transaction is not None else iter(())


def _parse(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every whole message in `data`."""
    position = 0
    while position + _HEAD.size <= len(data):
        subxid, length = _HEAD.unpack_from(data, position)
        end = position + _HEAD.size + length
        if end > len(data):
            return
        yield subxid, data[position + _HEAD.size : end]
        position = end
