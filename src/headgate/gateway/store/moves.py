"""Topics and groups on their way to another cluster, as the catalogue has them.

fenced   nobody appends; readers read on
closed   nobody reads, either: groups are moving
moved    Metadata sends clients to the other cluster
"""

from __future__ import annotations

import logging
from typing import Any, Literal
from uuid import UUID

import msgspec

__all__ = ["Elsewhere", "ElsewhereBroker", "ElsewherePartition", "Move", "MovedGroup", "read_move"]

logger = logging.getLogger(__name__)

State = Literal["fenced", "closed", "moved"]


class ElsewhereBroker(msgspec.Struct, frozen=True):
    """A broker of the other cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ElsewherePartition(msgspec.Struct, frozen=True):
    """The leader and the copies of a partition of the other cluster."""

    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


class Elsewhere(msgspec.Struct, frozen=True):
    """A topic in the other cluster, as that cluster described it when the topic moved."""

    cluster_id: str
    controller: int
    topic_id: UUID
    brokers: tuple[ElsewhereBroker, ...]
    partitions: tuple[ElsewherePartition, ...]


class Move(msgspec.Struct, frozen=True):
    """How far a topic's move has come."""

    state: State
    target: Elsewhere | None = None

    @property
    def is_closed(self) -> bool:
        """Return whether nobody may read here any more."""
        return self.state != "fenced"


class MovedGroup(msgspec.Struct, frozen=True):
    """Where the members of a group find their coordinator; nowhere while its offsets are on the way."""

    node_id: int | None = None
    host: str | None = None
    port: int | None = None


def read_move(topic: str, state: str | None, target: Any) -> Move | None:
    """Return a topic's move; None if it stays.

    Somebody may have written to the table by hand: a topic that nobody can find elsewhere is closed, and others go on.
    """
    if state is None:
        return None
    try:
        move = msgspec.convert({"state": state, "target": target}, Move)
    except msgspec.ValidationError as error:
        logger.error("kafka.moves has a target that cannot be read", extra={"topic": topic, "why": str(error)})
        return Move("closed")
    return move if move.state != "moved" or move.target is not None else Move("closed")
