"""The tables of one read of a stream: which are joined, left or dropped, and up to where transactions are complete."""

from __future__ import annotations

import logging

from headgate.consume.bookmark import Bookmark
from headgate.consume.joined import Joined, OpenTransaction, TransactionKey
from headgate.consume.tables import TableName

__all__ = ["FollowedTables"]

logger = logging.getLogger(__name__)


class FollowedTables:
    """Owns the tables that are joined, and the place in the stream up to which transactions are complete."""

    def __init__(self, stream: str) -> None:
        self.joined: dict[TableName, Joined] = {}
        self.left: set[TableName] = set()  # wanted again as soon as they are published again
        self.created = ""  # the stream that is meant
        self._stream = stream
        self._sequence: int | None = None  # complete up to here
        self._msg_id: str | None = None
        self._at = 0  # the message that is looked at
        self._dropped: dict[TableName, int] = {}
        self._ignored: set[TableName] = set()
        self._new: list[TableName] = []
        self._gone: list[TableName] = []
        self._open: OpenTransaction | None = None
        self._closed: tuple[TransactionKey | None, int] = (None, 0)
        self._newest: dict[str, str] = {}  # the last message id of each origin

    def start(self, sequence: int, msg_id: str | None) -> None:
        """Go on behind a place that was complete."""
        self._sequence, self._msg_id = sequence, msg_id

    def forget_before(self, first: int) -> list[TableName]:
        """The stream begins with `first` now: the tables that are not joined behind that, which are joined no more."""
        sequence = self._sequence or 0
        lost = [name for name, joined in self.joined.items() if max(joined.after, sequence) + 1 < first]
        for name in lost:
            del self.joined[name]
        self._sequence, self._msg_id = min((each.after for each in self.joined.values()), default=None), None
        return lost

    def forget_all(self, created: str) -> None:
        """Another stream has the name now: nothing is joined to it."""
        self.joined.clear()
        self._newest.clear()
        self._sequence, self._msg_id, self._closed, self.created = None, None, (None, 0), created

    def ignore(self, table: TableName) -> None:
        """A table that cannot be joined."""
        self._ignored.add(table)

    def join(self, table: TableName, joined: Joined) -> None:
        """Read a table from now on. If its place is before the others', they must not see again what they have."""
        if self._sequence is None:
            self._sequence, self._msg_id = joined.after, None
        if joined.after < self._sequence:
            for other in self.joined.values():
                other.after = max(other.after, self._sequence)
            self._sequence, self._msg_id = joined.after, None
        self.joined[table] = joined
        self.left.discard(table)

    def drop(self, table: TableName) -> None:
        """Leave a table out; the follower stops at the end of the transaction, to let it be joined again."""
        if self.joined.pop(table, None) is not None:
            self._dropped[table] = self._at
            if self._open is not None:
                self._open.leave_out(table)

    def take_dropped(self) -> dict[TableName, int]:
        """Tables that were left out, each with the place behind which a snapshot of it must stand."""
        dropped, self._dropped = self._dropped, {}
        return dropped

    def take_new(self) -> list[TableName]:
        """Tables that the stream or the bucket has shown and nobody asked for yet."""
        new, self._new = self._new, []
        return new

    def bookmark(self) -> Bookmark:
        sequence = self._sequence or 0
        tables = {name.key: joined.mark(sequence) for name, joined in self.joined.items()}
        return Bookmark(self._stream, sequence, self._msg_id, tables, stream_created=self.created)

    def leave(self, table: TableName) -> None:
        """Read it no more, until it is published again."""
        self.joined.pop(table, None)
        self.left.add(table)
        if self._open is not None:
            self._open.leave_out(table)

    def _take_gone(self) -> list[TableName]:
        gone, self._gone = self._gone, []
        return gone

    def _must_join(self) -> bool:
        """At the end of a transaction only."""
        return bool(self._dropped or self._new) and self._open is None

    def _lose(self, table: TableName, reason: str) -> None:
        logger.warning("%s: %s; taking a new snapshot", table, reason)
        self.drop(table)
