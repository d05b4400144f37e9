"""What the configuration of sources that read topics shares."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from headgate.config.base import Duration
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.kafka.options import KafkaSourceOptions

__all__ = ["TopicsSection"]


class TopicsSection(SourceTable):
    """What the sources that read topics share."""

    fixed_columns: ClassVar[tuple[str, ...]] = (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    )  # fmt: skip

    topics: tuple[str, ...] = option(
        KafkaSourceOptions, "subscribe", is_list=True, description='Names of topics: `["orders"]`.'
    )
    topic_pattern: str = option(
        KafkaSourceOptions, "subscribe_pattern", description="Or a regular expression that names match as a whole."
    )
    start_at: Literal["earliest", "latest"] = option(
        KafkaSourceOptions, "starting_offsets", description="Where the first start begins."
    )
    max_rows_per_batch: int = option(
        KafkaSourceOptions, "max_offsets_per_trigger", ge=1, description="The most messages one batch may take."
    )
    partitions: int = option(
        KafkaSourceOptions,
        "min_partitions",
        ge=0,
        le=1024,
        description="Tasks that read a batch, if more than the topics' own.",
    )
    unit: Literal["messages", "batches"] = option(
        KafkaSourceOptions,
        "unit",
        description="What a row is: a message, or a whole batch of them as it is stored, for a mirror.",
    )
    poll_interval: Duration = option(
        KafkaSourceOptions,
        "poll_interval_ms",
        in_milliseconds=True,
        description="How often topics that had nothing new are looked at.",
    )
    fail_on_data_loss: bool = option(
        KafkaSourceOptions, "fail_on_data_loss", description="Whether messages gone before they were read are an error."
    )

    @property
    def has_batches(self) -> bool:
        return self.unit == "batches"

    @model_validator(mode="after")
    def _batches_in_order(self) -> Self:
        if self.has_batches and self.partitions:
            raise ValueError('with unit = "batches" each partition is read by one task: leave partitions out')
        return self

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("set one of topics and topic_pattern")
        if any("," in topic for topic in self.topics):
            raise ValueError("a topic's name has no comma")
        return self
