"""Options of the `kafkatopics` source, as Spark hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headgate.model import UsageError
from headgate.sources.options import parse_options

__all__ = ["BATCHES", "KafkaSourceOptions", "check_topics", "check_unit"]

BATCHES = "batches"

_WHERE = 'format("kafkatopics")'
_PREFIX = "kafka."


@dataclass(frozen=True, slots=True)
class KafkaSourceOptions:
    """What `spark.readStream.format("kafkatopics").option(...)` accepts, and any `kafka.*` setting of librdkafka's."""

    subscribe: str = ""  # topics, separated by commas
    subscribe_pattern: str = ""  # or a regular expression that topics match as a whole
    starting_offsets: str = "earliest"  # or latest, or {"topic": {"0": 23}}
    max_offsets_per_trigger: int = 100_000
    min_partitions: int = 0  # more tasks than there are partitions, if that many are wanted
    poll_interval_ms: int = 100  # milliseconds between two looks at topics that had nothing new
    unit: str = "messages"  # or batches: a row is one stored batch, whole
    fail_on_data_loss: bool = True  # whether messages that are gone before they were read stop the stream
    group_id: str = ""  # the group that is told what was delivered, for people who watch its lag
    request_timeout_ms: int = 30_000
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # they may hold secrets

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> Self:
        own = {name: text for name, text in options.items() if not name.lower().startswith(_PREFIX)}
        settings = {name[len(_PREFIX) :]: text for name, text in options.items() if name.lower().startswith(_PREFIX)}
        if "settings" in own:
            raise UsageError("unknown option settings", where=_WHERE, remedy="write each as kafka.<name>")
        parsed = parse_options(cls, own, source="kafkatopics")
        check_topics(parsed.subscribe, parsed.subscribe_pattern, _WHERE)
        if not settings.get("bootstrap.servers"):
            raise UsageError("no servers are given", where=_WHERE, remedy='add .option("kafka.bootstrap.servers", ...)')
        check_unit(parsed.unit, parsed.min_partitions, _WHERE)
        if not parsed.max_offsets_per_trigger:
            raise UsageError("a batch needs a message", where=_WHERE, remedy="let maxOffsetsPerTrigger be 1 at least")
        values = {name: getattr(parsed, name) for name in cls.__slots__}
        return cls(**values | {"settings": tuple(sorted(settings.items()))})

    def client_settings(self) -> dict[str, Any]:
        """What a consumer is started with: it reads what it is told to, and keeps no position of its own."""
        return {
            "group.id": self.group_id or "headgate",
            "isolation.level": "read_committed",
            **dict(self.settings),
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error" if self.fail_on_data_loss else "earliest",
        }


def check_topics(subscribe: str, pattern: str, where: str) -> None:
    if bool(subscribe) == bool(pattern):
        raise UsageError(
            "it is not said which topics to read" if not subscribe else "subscribe and subscribePattern are both given",
            where=where,
            remedy="set one of subscribe and subscribePattern",
        )


def check_unit(unit: str, min_partitions: int, where: str) -> None:
    if unit not in ("messages", BATCHES):
        raise UsageError(f"unit is {unit!r}", where=where, remedy="give messages or batches")
    if unit == BATCHES and min_partitions:
        raise UsageError(
            "batches of a partition are read by one task, in their order", where=where, remedy="leave minPartitions out"
        )
