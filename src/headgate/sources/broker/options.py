"""Options of the `pgbroker` source, as Spark hands them over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from headgate.model import UsageError
from headgate.sources.options import parse_options

if TYPE_CHECKING:  # the configuration takes its defaults from here, and needs no client for that
    from headgate.broker import Subscription

__all__ = ["BrokerSourceOptions"]

_WHERE = 'format("pgbroker")'


@dataclass(frozen=True, slots=True)
class BrokerSourceOptions:
    """What `spark.readStream.format("pgbroker").option(...)` accepts."""

    url: str = field(repr=False)
    group: str
    subscribe: str = ""  # topics, separated by commas; all events unless given
    condition: str = ""  # or a condition over `e` and `s`,
    params: str = ""  # with parameters, as JSON
    schema: str = "headgate"  # the broker's `DEFAULT_SCHEMA`
    owner: str = ""  # who reads; the same after a restart. The group's name unless given
    max_offsets_per_trigger: int = 100_000
    min_partitions: int = 1  # tasks that read a batch; above 1, order is per task
    poll_interval_ms: int = 50  # milliseconds between two looks that found nothing
    fail_on_data_loss: bool = True  # whether events that are gone before they were read stop the stream

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        parsed = parse_options(cls, options, source="pgbroker")
        if parsed.subscribe and parsed.condition:
            raise UsageError("there are topics and a condition", where=_WHERE, remedy="set subscribe or condition")
        if not parsed.max_offsets_per_trigger or not parsed.min_partitions:
            remedy = "let maxOffsetsPerTrigger and minPartitions be 1 at least"
            raise UsageError("a batch needs an event and a task", where=_WHERE, remedy=remedy)
        parsed.subscription()
        return parsed

    @property
    def reader(self) -> str:
        return f"spark {self.owner or self.group}"

    def subscription(self) -> Subscription:
        """What the group subscribes to, if it does not already."""
        from headgate.broker import Subscription

        if self.subscribe:
            return Subscription.to_topics(*(name.strip() for name in self.subscribe.split(",") if name.strip()))
        try:
            params = json.loads(self.params or "{}")
        except ValueError:
            params = None
        if not isinstance(params, dict):
            raise UsageError("params is no JSON object", where=_WHERE, remedy='give something like {"topic": "orders"}')
        return Subscription(self.condition or "true", params)
