"""The configuration of a `kafka` source."""

from __future__ import annotations

from typing import Literal

from headgate.config.base import Duration
from headgate.config.kafka import KafkaConnection
from headgate.config.options import option
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.topics import TopicsSection

__all__ = ["KafkaSourceSection"]


class KafkaSourceSection(TopicsSection, KafkaConnection):
    """Messages of topics of a Kafka cluster."""

    type: Literal["kafka"]
    group: str = option(
        KafkaSourceOptions,
        "group_id",
        description="A group whose offsets are moved on as messages are delivered, to watch its lag.",
    )
    request_timeout: Duration = option(
        KafkaSourceOptions,
        "request_timeout_ms",
        in_milliseconds=True,
        gt=0,
        description="How long to wait for an answer.",
    )
