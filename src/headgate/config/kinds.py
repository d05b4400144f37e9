"""What others must know of a kind of source or destination before, or without, importing its code."""

from __future__ import annotations

from typing import ClassVar, Literal

from headgate.config.base import Section

__all__ = ["DestinationTable", "SourceTable"]


class SourceTable(Section):
    """The table of a source. A kind that differs from what stands here says so in its own class."""

    uses: ClassVar[Literal["postgres"] | None] = None  # the server that it reads unless it has a `url` of its own
    has_envelope: ClassVar[bool] = False  # rows know their topic and payload; others must be told
    can_read_again: ClassVar[bool] = False  # what it spooled can be had once more, so that a reset may forget it
    fixed_columns: ClassVar[tuple[str, ...]] = ()  # of every table of this kind, as far as that is so

    @property
    def has_batches(self) -> bool:
        """Whether its rows are whole batches of messages, which few destinations take."""
        return False

    @property
    def listens_on(self) -> tuple[str, int] | None:
        """The host and port of a server that this kind starts."""
        return None


class DestinationTable(Section):
    """The table of a destination. A kind that differs from what stands here says so in its own class."""

    uses: ClassVar[Literal["postgres", "nats"] | None] = None  # the server it writes to unless it has a `url`
    has_partitions: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True  # of any source
    batches_from: ClassVar[tuple[str, ...]] = ()  # kinds of sources whose whole batches of messages it takes

    @property
    def listens_on(self) -> tuple[str, int] | None:
        """The host and port of a server that this kind starts."""
        return None
