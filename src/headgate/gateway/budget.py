"""How many bytes of requests and answers a gateway keeps in memory, over all of its connections.

What has arrived is counted, and not what a frame announces: a client that says much and sends little holds nothing.
When memory is short, whoever has begun a large frame waits in line. One of them may read on beyond the limit, unless
requests are being worked on that will give memory back: so half-read frames cannot wait for one another for ever. It
has to be quick. Small frames never wait.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

__all__ = ["Budget", "Reader"]


class Reader(Protocol):
    """A connection that is receiving a large frame."""

    @property
    def address(self) -> str:
        """From where it comes: one address cannot take more than half of everything."""

    def resume(self) -> None:
        """Called when memory may be free: ask `may_read` again."""


class Budget:
    """Bytes that are taken and given back, and the line of those who wait for some."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._working = 0  # of that, requests that are whole and not answered
        self._by_address: Counter[str] = Counter()
        self._line: dict[Reader, None] = {}
        self._finisher: Reader | None = None
        self._turn = 0

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)

    def take(self, size: int, address: str) -> None:
        """Count bytes that are in memory, or will be."""
        self.used += size
        self._by_address[address] += size

    def give_back(self, size: int, address: str) -> None:
        self.used -= size
        self._by_address[address] -= size
        if not self._by_address[address]:
            del self._by_address[address]
        self._wake()

    def begin(self, size: int) -> None:
        """Count a complete request of `size` bytes as being worked on."""
        self._working += size

    def end(self, size: int) -> None:
        """Count such a request as answered, and let waiting connections read."""
        self._working -= size
        self._wake()

    def is_short(self, address: str) -> bool:
        return self.used >= self.limit or self._by_address[address] >= self.limit // 2

    def may_read(self, reader: Reader) -> bool:
        """Whether it may go on with its frame. If not, it is told when to ask again."""
        if reader is self._finisher or not self.is_short(reader.address):
            self._line.pop(reader, None)
            return True
        self._line.setdefault(reader)
        if self._may_exceed and self._candidate() is reader:
            del self._line[reader]
            self._finisher = reader
            self._turn += 1
            return True
        return False

    def is_finishing(self, reader: Reader) -> bool:
        """Whether it reads beyond the limit while others wait."""
        return reader is self._finisher

    def finished(self, reader: Reader) -> None:
        """Its frame is whole, or will never be."""
        self._line.pop(reader, None)
        if reader is self._finisher:
            self._finisher = None
            self._wake()

    @property
    def _may_exceed(self) -> bool:
        return self._finisher is None and self._working <= self.limit // 2

    def _candidate(self) -> Reader:
        """The oldest and the newest of the line by turns: those that stall are soon the old ones."""
        return next(iter(self._line) if self._turn % 2 else reversed(self._line))

    def _wake(self) -> None:
        if self._line and self._may_exceed:
            self._candidate().resume()
        for reader in list(self._line):
            if not self.is_short(reader.address):
                reader.resume()
