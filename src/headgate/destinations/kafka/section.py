"""The configuration of a `kafka` destination."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.config.base import Duration, Size
from headgate.config.kafka import KafkaConnection
from headgate.config.kinds import DestinationTable
from headgate.config.options import option
from headgate.destinations.kafka.options import KafkaOptions

__all__ = ["KafkaDestinationSection"]


class KafkaDestinationSection(DestinationTable, KafkaConnection):
    """Topics of a Kafka cluster. Every message is acknowledged by all replicas in sync, and carries its id."""

    type: Literal["kafka"]
    topic: str = option(
        KafkaOptions,
        "topic",
        description="Name of a topic whose rows have a stream; without one it is the row's topic.",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = option(
        KafkaOptions, "compression", description="Of batches of messages."
    )
    linger: Duration = option(
        KafkaOptions, "linger_s", description="How long messages wait for others to share a request with."
    )
    max_message_bytes: Size = option(
        KafkaOptions, "max_message_bytes", ge=1000, description="The largest message; topics have a limit, too."
    )
    queue_bytes: Size = option(KafkaOptions, "queue_bytes", ge=1024, description="Messages waiting in a task, at most.")
    delivery_timeout: Duration = option(
        KafkaOptions, "delivery_timeout_s", gt=0, description="How long to wait for an acknowledgement."
    )
    connect_timeout: Duration = option(
        KafkaOptions, "connect_timeout_s", gt=0, description="How long to wait for the cluster's first answer."
    )
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the topics: then a replay begins behind what lies last in each "
        "partition. On by default for CDC pipelines, and for others not to be had.",
    )
