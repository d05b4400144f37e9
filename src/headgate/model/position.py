"""A place in a source's total order, and its text form.

The text form sorts as the position does, so a consumer may compare two positions as plain strings, and a message
id built from it is stable across restarts.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from headgate.model.errors import ProtocolError

__all__ = ["Position", "origin_of", "renewed_origin", "timeline_text"]


class Position(NamedTuple):
    """`major` orders batches of rows that belong together (a transaction's commit LSN), `ordinal` the rows inside.

    For PostgreSQL it is `(commit_lsn, ordinal)`: a row's own LSN is neither unique nor ordered. A source
    without transactions counts in `major` and leaves `ordinal` at 0.

    `timeline` is PostgreSQL's: a server that was promoted may write at LSNs that the old one had used already. It
    comes first in the text, so that what the new server writes sorts behind everything of the old one. Sources
    that know no timelines leave it at 0, and it is not written.
    """

    major: int
    ordinal: int = 0
    timeline: int = 0

    def __str__(self) -> str:
        return f"{timeline_text(self.timeline)}{self.major:016X}-{self.ordinal:08X}"

    @classmethod
    def parse(cls, text: str) -> Self:
        major, dash, ordinal = text.partition("-")
        if not dash or len(major) not in (16, 24) or len(ordinal) < 8:
            raise ProtocolError(f"not a position: {text[:40]!r}")
        try:
            return cls(int(major[-16:], 16), int(ordinal, 16), int(major[:-16] or "0", 16))
        except ValueError:
            raise ProtocolError(f"not a position: {text[:40]!r}") from None


def timeline_text(timeline: int) -> str:
    """What stands before the two numbers of a position; nothing for a source without timelines."""
    return f"{timeline:08X}" if timeline else ""


def origin_of(message_id: str) -> str:
    """The writer of a message: what stands before the two numbers of the position in its id, `origin-major-ordinal`.

    A source that was reset is the same writer, although its origin has a number of its own behind a `~`.
    """
    return message_id.rsplit("-", 2)[0].partition("~")[0]


def renewed_origin(origin: str, resets: int) -> str:
    """The origin after some resets: rows that get an old row's number have another id, which sorts behind it."""
    return f"{origin}~{resets:06d}" if resets else origin
