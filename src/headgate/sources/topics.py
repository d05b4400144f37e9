"""What the configuration of sources that read topics shares."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import Duration, Section

__all__ = ["TopicsSection"]


class TopicsSection(Section):
    """What the sources that read topics share."""

    topics: tuple[str, ...] = Field((), description='Names of topics: `["orders"]`.')
    topic_pattern: str = Field("", description="Or a regular expression that names match as a whole.")
    start_at: Literal["earliest", "latest"] = Field("earliest", description="Where the first start begins.")
    max_rows_per_batch: int = Field(100_000, ge=1, description="The most messages one batch may take.")
    partitions: int = Field(0, ge=0, le=1024, description="Tasks that read a batch, if more than the topics' own.")
    poll_interval: Duration = Field(0.1, description="How often topics that had nothing new are looked at.")
    fail_on_data_loss: bool = Field(True, description="Whether messages gone before they were read are an error.")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("set one of topics and topic_pattern")
        if any("," in topic for topic in self.topics):
            raise ValueError("a topic's name has no comma")
        return self

    def reading(self) -> dict[str, object]:
        """Return the options that the Spark data sources of topics have in common."""
        return {
            "subscribe": ",".join(self.topics),
            "subscribePattern": self.topic_pattern,
            "startingOffsets": self.start_at,
            "maxOffsetsPerTrigger": self.max_rows_per_batch,
            "minPartitions": self.partitions,
            "pollInterval": round(self.poll_interval * 1000),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
        }
