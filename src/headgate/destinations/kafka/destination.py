"""The `kafka` destination: rows of a pipeline to topics of a Kafka cluster.

The producer is idempotent: its own retries neither double nor reorder messages. A replay after a crash is another
matter, which Kafka does not recognise. Consumers can, by the header `headgate-id`. With `exclusive`, headgate does:
the last record of each partition tells how far the pipeline came.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender, TopicDefaults
from headgate.destinations.checking import check_one_task
from headgate.destinations.kafka.options import KafkaOptions
from headgate.destinations.kafka.pool import borrow_client
from headgate.destinations.kafka.sender import ExclusiveSender, LateSender, SharedSender
from headgate.destinations.kafka.topics import ensure_topic, open_reader, partition_count

__all__ = ["KafkaDestination"]


@dataclass(frozen=True, slots=True)
class KafkaDestination(Destination):
    """Every row is acknowledged by all replicas that are in sync, and carries its message id in a header."""

    has_tombstones: ClassVar[bool] = True

    name: str
    options: KafkaOptions
    exclusive: bool = False

    def ensure(self) -> None:
        """Check that the cluster answers. Topics are created when rows ask for them."""
        with borrow_client(self.options, gapless=self.exclusive):
            pass

    def check(self) -> str:
        self.ensure()
        return super(KafkaDestination, self).check()

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        with open_reader(self.options) as reader:
            return ensure_topic(reader, self.options, self.options.topic_name(stream, topic), defaults)

    def missing(self, stream: str | None, topic: str) -> str | None:
        name = self.options.topic_name(stream, topic)
        with open_reader(self.options) as reader:
            return None if partition_count(reader, self.options, name) else f"topic {name}"

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        with open_reader(self.options) as reader:
            found = partition_count(reader, self.options, self.options.topic_name(stream, topic))
        return found or defaults.partitions

    @property
    def takes_shares(self) -> bool:
        return not self.exclusive  # then consumers recognise a replay

    def details(self) -> dict[str, Any]:
        return {"servers": self.options.servers, "exclusive": self.exclusive}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        if self.exclusive:
            check_one_task(lane)
        with borrow_client(self.options, gapless=self.exclusive) as client:
            kind = SharedSender
            if self.exclusive:
                kind = LateSender if lane.is_late else ExclusiveSender
            yield kind(self.name, client, lane)
