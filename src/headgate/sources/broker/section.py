"""The configuration of a `broker` source."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from headgate.config.base import Duration, SecretText
from headgate.config.kinds import SourceTable
from headgate.config.options import option
from headgate.sources.broker.options import BrokerSourceOptions

__all__ = ["BrokerSourceSection"]


class BrokerSourceSection(SourceTable):
    """Events of the broker in PostgreSQL, as a group of it gets them."""

    uses: ClassVar[Literal["postgres"]] = "postgres"
    fixed_columns: ClassVar[tuple[str, ...]] = ("id", "topic", "payload", "metadata", "at", "pos", "subscription_ids")

    type: Literal["broker"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    broker_schema: str = option(
        BrokerSourceOptions, "schema", pattern=r"^[a-z_][a-z0-9_]{0,39}$", description="The broker's schema."
    )
    group: str = option(
        BrokerSourceOptions,
        "group",
        min_length=1,
        max_length=255,
        description="The group that reads; made when missing.",
    )
    topics: tuple[str, ...] = option(
        BrokerSourceOptions,
        "subscribe",
        is_list=True,
        description='Topics to subscribe to: `["orders"]`; all events unless given.',
    )
    condition: str = option(
        BrokerSourceOptions, "condition", description="Or a condition over `e` (the event) and `s` (the subscription)."
    )
    params: dict[str, Any] = Field(default_factory=dict, description="`s.params` of the condition.")
    max_rows_per_batch: int = option(
        BrokerSourceOptions, "max_offsets_per_trigger", ge=1, description="The most events one batch may take."
    )
    partitions: int = option(
        BrokerSourceOptions,
        "min_partitions",
        ge=1,
        le=1024,
        description="Tasks that read one batch. Above 1, order is per task.",
    )
    poll_interval: Duration = option(
        BrokerSourceOptions,
        "poll_interval_ms",
        in_milliseconds=True,
        description="How often a group that had nothing new is asked.",
    )
    fail_on_data_loss: bool = option(
        BrokerSourceOptions, "fail_on_data_loss", description="Whether events gone before they were read are an error."
    )

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if self.topics and self.condition:
            raise ValueError("set one of topics and condition")
        if any("," in topic for topic in self.topics):
            raise ValueError("a topic with a comma cannot be listed; use a condition")
        return self
