"""What can be said of a row at its destination."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Arrival"]


class Arrival(NamedTuple):
    """One row, as a reader of the destination finds it."""

    message_id: str  # empty where a kind does not keep it
    payload: bytes
    partition: int | None = None
