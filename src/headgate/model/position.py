"""A place in a source's total order, and its text form.

The text form sorts as the position does, so a consumer may compare two positions as plain strings, and a message
id built from it is stable across restarts.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from headgate.model.errors import ProtocolError

__all__ = ["Position", "origin_of"]


class Position(NamedTuple):
    """`major` orders batches of rows that belong together (a transaction's commit LSN), `ordinal` the rows inside.

    For PostgreSQL it is `(commit_lsn, ordinal)`: a row's own LSN is neither unique nor ordered. A source
    without transactions counts in `major` and leaves `ordinal` at 0.
    """

    major: int
    ordinal: int = 0

    def __str__(self) -> str:
        return f"{self.major:016X}-{self.ordinal:08X}"

    @classmethod
    def parse(cls, text: str) -> Self:
        major, dash, ordinal = text.partition("-")
        if not dash or len(major) != 16 or len(ordinal) < 8:
            raise ProtocolError(f"not a position: {text[:40]!r}")
        try:
            return cls(int(major, 16), int(ordinal, 16))
        except ValueError:
            raise ProtocolError(f"not a position: {text[:40]!r}") from None


def origin_of(message_id: str) -> str:
    """What stands before the position in a message id, which is two numbers: `origin-major-ordinal`."""
    return message_id.rsplit("-", 2)[0]
