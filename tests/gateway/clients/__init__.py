"""Stock clients behind one small interface, so that the same scenarios run over each of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["CODECS", "Client", "Message"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Message:
    """What a client sends or is given; partition and offset are the log's to say when it is sent without."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0
    timestamp: int = 0
    offset: int = -1


class Client(abc.ABC):
    """One kind of client. Each call uses connections of its own and leaves nothing behind."""

    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]] = CODECS
    null_headers: ClassVar[bool] = True  # whether it can send and read a header without a value
    repeats_headers: ClassVar[bool] = True  # whether it can send two headers of one key

    def __init__(self, servers: str) -> None:
        self.servers = servers

    @abc.abstractmethod
    def produce(
        self, topic: str, messages: Sequence[Message], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        """Send in order, and wait until all is acknowledged. Raises what the client raises."""

    @abc.abstractmethod
    def consume(self, topic: str, partitions: int, count: int) -> list[Message]:
        """The first `count` messages of all partitions, read without a group, sorted by partition and offset."""

    @abc.abstractmethod
    def consume_group(self, topic: str, group: str, count: int) -> list[Message]:
        """`count` messages as a member of a group, from its committed offsets or the earliest; commits, and leaves."""

    @abc.abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset whose time is not before this one; None if there is none."""

    @abc.abstractmethod
    def topics(self) -> set[str]:
        """What the cluster has."""
