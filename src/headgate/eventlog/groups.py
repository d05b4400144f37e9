"""Listeners that want the same: what is new is written to all of them as one buffer.

Whoever cannot take more for the moment lags. Only then, and only as far as the slowest needs them, are buffers kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from headgate.eventlog.connection import Connection
from headgate.eventlog.doors import Door, Framing, Message
from headgate.eventlog.records import Record

__all__ = ["Group", "framed"]

_log = logging.getLogger(__name__)


def framed(door: Door, framing: Framing, records: Iterable[Record]) -> list[Message]:
    """The messages of records, ready for a connection."""
    frames: list[Message] = []
    for record in records:
        try:
            made = door.messages(record)
        except Exception:  # one record that a door cannot read must not silence all the others
            _log.exception("a record has no message", extra={"seq": record.seq, "kind": record.kind})
            continue
        frames += [Message(subject, framing.event(record.seq, data)) for subject, data in made]
    return frames


class Group:
    """Listeners at one door, over one kind of connection, with one filter."""

    def __init__(self, door: Door, framing: Framing, wanted: Hashable) -> None:
        self.door = door
        self.framing = framing
        self.wanted = wanted
        self._live: dict[Connection, None] = {}
        self._lagging: dict[Connection, int] = {}  # how much of the total each was sent
        self._kept: deque[tuple[int, bytes]] = deque()  # buffers, with the total behind each
        self._total = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._lagging)

    @property
    def kept_bytes(self) -> int:
        return sum(len(data) for _, data in self._kept)

    def joined(self, frames: Sequence[Message]) -> bytes:
        """The frames that this group wants, as one buffer."""
        wanted, wants = self.wanted, self.door.wants
        if wanted is None:
            return b"".join([data for _, data in frames])
        return b"".join([data for subject, data in frames if wants(subject, wanted)])

    def add(self, connection: Connection) -> None:
        """Somebody who has been sent all there was."""
        if connection.is_paused:
            self._lagging[connection] = self._total
        else:
            self._live[connection] = None

    def remove(self, connection: Connection) -> None:
        self._live.pop(connection, None)
        if self._lagging.pop(connection, None) is not None:
            self._trim()

    def publish(self, data: bytes, most_bytes: int) -> list[Connection]:
        """Write a buffer to everybody; who lags by more than `most_bytes` is returned."""
        self._total += len(data)
        for connection in list(self._live):
            connection.transport.write(data)
        if not self._lagging:
            return []
        # Whoever fell behind by this very buffer has it already.
        self._kept.append((self._total, data))
        self._trim()
        return [each for each, sent in self._lagging.items() if self._total - sent > most_bytes]

    def paused(self, connection: Connection) -> None:
        if connection in self._live:
            del self._live[connection]
            self._lagging[connection] = self._total

    def resumed(self, connection: Connection) -> None:
        """Write what was kept, until the connection has all of it or is full again."""
        sent = self._lagging.get(connection)
        if sent is None:
            return
        for total, data in list(self._kept):
            if total > sent and not connection.is_paused:
                connection.transport.write(data)
                sent = total
        if connection.is_paused:
            self._lagging[connection] = sent
        else:
            del self._lagging[connection]
            self._live[connection] = None
        self._trim()

    def _trim(self) -> None:
        needed = min(self._lagging.values(), default=self._total)
        while self._kept and self._kept[0][0] <= needed:
            self._kept.popleft()
