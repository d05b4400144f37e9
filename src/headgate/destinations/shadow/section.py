"""The configuration of a `shadow` destination."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from headgate.config.base import Duration, SecretText
from headgate.config.kafka import KafkaConnection
from headgate.config.kinds import DestinationTable

__all__ = ["ShadowDestinationSection"]


class ShadowDestinationSection(DestinationTable, KafkaConnection):
    """Topics of the log mirrored to another Kafka cluster: batches as they are, to the same partitions."""

    uses: ClassVar[Literal["postgres"]] = "postgres"
    takes_rows: ClassVar[bool] = False
    batches_from: ClassVar[tuple[str, ...]] = ("log",)

    type: Literal["shadow"]
    url: SecretText | None = Field(None, description="Another server than `[postgres]`: that of the log.")
    url_file: Path | None = Field(None, description="Read `url` from this file.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="How to log in."
    )
    topic_prefix: str = Field("", pattern=r"^[A-Za-z0-9._-]*$", description="What names of topics there begin with.")
    percent: int = Field(
        100, ge=1, le=100, description="Of so many of a hundred keys, all messages are mirrored: to try it out."
    )
    replicas: int = Field(-1, ge=-1, description="Of topics that are made there; -1 leaves it to the cluster.")
    groups: tuple[str, ...] = Field(
        (), description='Consumer groups whose offsets go along while nobody uses them there; `["*"]` is all.'
    )
    group_interval: Duration = Field(5.0, gt=0, description="How often offsets of groups are pushed.")
    timeout: Duration = Field(10.0, gt=0, description="How long to wait for a broker.")
