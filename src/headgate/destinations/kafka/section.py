"""The configuration of a `kafka` destination."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.config.base import Duration, Size
from headgate.config.kafka import KafkaConnection

__all__ = ["KafkaDestinationSection"]


class KafkaDestinationSection(KafkaConnection):
    """Topics of a Kafka cluster. Every message is acknowledged by all replicas in sync, and carries its id."""

    type: Literal["kafka"]
    topic: str = Field(
        "{stream}.{topic}", description="Name of a topic whose rows have a stream; without one it is the row's topic."
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field("zstd", description="Of batches of messages.")
    linger: Duration = Field(0.005, description="How long messages wait for others to share a request with.")
    max_message_bytes: Size = Field(1_000_000, ge=1000, description="The largest message; topics have a limit, too.")
    queue_bytes: Size = Field(64 << 20, ge=1024, description="Messages waiting in a task, at most.")
    delivery_timeout: Duration = Field(30.0, gt=0, description="How long to wait for an acknowledgement.")
    connect_timeout: Duration = Field(5.0, gt=0, description="How long to wait for the cluster's first answer.")
    exclusive: bool | None = Field(
        None,
        description="Whether only one pipeline writes the topics: then a replay begins behind what lies last in each "
        "partition. On by default for CDC pipelines, and for others not to be had.",
    )
