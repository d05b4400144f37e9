"""The `iggy` destination: rows of a pipeline to topics of an Apache Iggy server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender, TopicDefaults
from headgate.destinations.iggy.client import shared_client
from headgate.destinations.iggy.options import IggyOptions, check_name
from headgate.destinations.iggy.sender import IggySender

__all__ = ["IggyDestination"]


@dataclass(frozen=True, slots=True)
class IggyDestination(Destination):
    """Every row is acknowledged by the server. Iggy does not recognise a replay; consumers can, by `headgate-id`."""

    name: str
    options: IggyOptions

    def ensure(self) -> None:
        """Check that the server answers. Streams and topics are created when rows ask for them."""
        shared_client(self.options)

    def check(self) -> str:
        self.ensure()
        return super(IggyDestination, self).check()

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        stream = check_name(stream or self.options.stream, "stream")
        return shared_client(self.options).ensure_topic(stream, check_name(topic, "topic"), defaults)

    def missing(self, stream: str | None, topic: str) -> str | None:
        stream = stream or self.options.stream
        there = shared_client(self.options).partitions(stream, topic) is not None
        return None if there else f"topic {topic} in the stream {stream}"

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        found = shared_client(self.options).partitions(stream or self.options.stream, topic)
        return found or defaults.partitions

    def details(self) -> dict[str, Any]:
        return {"server": self.options.server}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        yield IggySender(self.name, shared_client(self.options), lane)
