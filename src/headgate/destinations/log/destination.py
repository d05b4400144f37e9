"""The `log` destination: rows of a pipeline appended to the tables of the gateway, by the executors themselves.

No gateway need run. Kafka clients read the messages from one, and SQL sees them in `kafka.messages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import psycopg

from headgate.commitlog.append import SESSION_SQL
from headgate.commitlog.install import install
from headgate.commitlog.topics import ensure_topic, find_topic
from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender, TopicDefaults
from headgate.destinations.checking import check_one_task, check_schema
from headgate.destinations.kafka.options import KafkaOptions
from headgate.destinations.postgres import database_of, error_of
from headgate.model import ConfigError
from headgate.postgres import open_connection
from headgate.wire.kafka.refusal import Refused

__all__ = ["LogDestination"]

_GRANT = "GRANT ALL ON SCHEMA kafka, its tables and functions"
_GONE = "the schema kafka is gone; restart the pipeline to make it"


@dataclass(frozen=True, slots=True)
class LogDestination(Destination):
    """`exclusive`: rows come in one order, from one writer, so that a replay begins behind what is there."""

    has_tombstones: ClassVar[bool] = True

    name: str
    url: str = field(repr=False)
    topic: str = "{stream}.{topic}"
    partitions: int = 1  # of topics that no route asks for with a number of its own
    exclusive: bool = False
    cleanup_policy: str = "delete"  # of topics that are made here
    batches: bool = False  # its rows are whole batches of another cluster: see destinations/log/returning.py

    def ensure(self) -> None:
        """Make the schema `kafka`, or bring it up to date."""
        with self._connected() as connection:
            install(connection)

    def check(self) -> str:
        with self._connected() as connection:
            return check_schema(connection, "kafka")

    def ensure_topic(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        configs = {"retention.ms": str(int(defaults.max_age_s * 1000) or -1)}
        if defaults.max_bytes:
            configs["retention.bytes"] = str(max(1, defaults.max_bytes // defaults.partitions))
        with self._connected() as connection:
            configs |= self._own_configs()
            return len(ensure_topic(connection, self.topic_name(stream, topic), defaults.partitions, configs).parts)

    def missing(self, stream: str | None, topic: str) -> str | None:
        name = self.topic_name(stream, topic)
        with self._connected() as connection:
            return None if find_topic(connection, name) else f"topic {name}"

    def partition_count(self, stream: str | None, topic: str, defaults: TopicDefaults) -> int:
        with self._connected() as connection:
            found = find_topic(connection, self.topic_name(stream, topic))
        return len(found.parts) if found else defaults.partitions

    def topic_name(self, stream: str | None, topic: str) -> str:
        """The topic in the log for a row's topic in a stream; names are Kafka's."""
        return KafkaOptions(servers="-", topic=self.topic).topic_name(stream, topic)

    @property
    def takes_shares(self) -> bool:
        return True

    def details(self) -> dict[str, Any]:
        return {"database": database_of(self.url), "exclusive": self.exclusive}

    def _own_configs(self) -> dict[str, str]:
        return {} if self.cleanup_policy == "delete" else {"cleanup.policy": self.cleanup_policy}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        from headgate.destinations.log.returning import ReturningSender
        from headgate.destinations.log.sender import LogSender  # brings a compiler, which only executors need

        if self.batches:
            with self._connected() as connection:
                connection.execute(SESSION_SQL)
                yield ReturningSender(self.name, connection)
            return
        if self.exclusive and not lane.share:
            check_one_task(lane)
        with self._connected() as connection:
            connection.execute(SESSION_SQL)
            yield LogSender(
                self.name,
                connection,
                lane,
                topic_name=self.topic_name,
                partitions=self.partitions,
                configs=self._own_configs(),
                is_ordered=self.exclusive and not lane.is_late,
            )

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with open_connection(self.url, "headgate log") as connection:
                yield connection
        except psycopg.Error as error:
            raise error_of(error, database_of(self.url), grant=_GRANT, gone=_GONE) from None
        except Refused as refused:
            raise ConfigError(str(refused), where=self.name, remedy="correct the topic's settings") from None
