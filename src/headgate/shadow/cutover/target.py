"""The other cluster, asked and told by its administrator's requests."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from headgate.model import ConnectError, DeliveryError

__all__ = ["Coordinator", "Group", "Target", "TargetTopic"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
Place = tuple[str, int]  # a topic and the number of a partition


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic as the other cluster describes it; per partition its leader, and who has copies."""

    name: str
    topic_id: UUID
    partitions: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Where the members of a group go."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Group:
    """A group of the other cluster: how many members it has, and its coordinator."""

    members: int
    coordinator: Coordinator | None


class Target:
    """The cluster of `settings`, which are librdkafka's. Every failure is a `ConnectError` or `DeliveryError`."""

    def __init__(self, servers: str, settings: Mapping[str, Any], timeout_s: float = 30.0) -> None:
        self.servers = servers
        self._settings = {**settings, "bootstrap.servers": servers}
        self._timeout_s = timeout_s
        self._admin: Any = AdminClient(dict(self._settings), logger=_log)

    def cluster(self) -> dict[str, Any]:
        """Return the cluster's id, controller and brokers, as `kafka.moves` keeps them."""
        found = self._wait(self._admin.describe_cluster(request_timeout=self._timeout_s))
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller.id if found.controller is not None else -1,
            "brokers": [
                {"node_id": node.id, "host": node.host, "port": node.port, "rack": node.rack} for node in found.nodes
            ],
        }

    def topics(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those topics that exist there, by name."""
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout_s)
        found: dict[str, TargetTopic] = {}
        for name, future in asked.items():
            try:
                described = future.result(self._timeout_s + 1)
            except KafkaException as error:
                if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                    continue
                raise self._error(error) from None
            found[name] = TargetTopic(name, _uuid(described.topic_id), tuple(map(_partition, described.partitions)))
        return found

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offset behind the last record of each partition."""
        asked = {TopicPartition(*place): _LATEST for place in places}
        answers = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
        return {(at.topic, at.partition): self._wait(future).offset for at, future in answers.items()}

    def group(self, group_id: str) -> Group:
        """Return a group's members and coordinator. One that nobody has used yet has no members."""
        asked = self._admin.describe_consumer_groups([group_id], request_timeout=self._timeout_s)
        found = self._wait(asked[group_id])
        node = found.coordinator
        return Group(len(found.members), None if node is None else Coordinator(node.id, node.host, node.port))

    def offsets(self, group_id: str) -> dict[Place, int]:
        """Return the offsets that a group has committed there."""
        asked = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group_id)], request_timeout=self._timeout_s
        )
        found = self._wait(asked[group_id]).topic_partitions
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def set_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Store offsets for a group without members."""
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        asked = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group_id, wanted)], request_timeout=self._timeout_s
        )
        for each in self._wait(asked[group_id]).topic_partitions:
            if each.error is not None:
                raise self._error(KafkaException(each.error))

    def reader(self) -> Any:
        """Return a consumer of whole partitions, which commits nothing."""
        settings = {
            **self._settings,
            "group.id": "headgate-verify",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
        }
        return Consumer(settings, logger=_log)

    def _wait(self, future: Any) -> Any:
        try:
            return future.result(self._timeout_s + 1)
        except KafkaException as error:
            raise self._error(error) from None
        except TimeoutError:
            raise ConnectError(
                f"no answer within {self._timeout_s:g} s", where=self.servers, remedy="check that its brokers run"
            ) from None

    def _error(self, error: KafkaException) -> ConnectError | DeliveryError:
        told = error.args[0]
        if told.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
            return ConnectError(told.str(), where=self.servers, remedy="check that its brokers run and answer")
        return DeliveryError(
            told.str(), where=self.servers, remedy="check the rights of the user, and the brokers' logs"
        )


def _uuid(found: Any) -> UUID:
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    return UUID(int=(high & (2**64 - 1)) << 64 | low & (2**64 - 1))


def _partition(found: Any) -> dict[str, Any]:
    return {
        "leader": found.leader.id if found.leader is not None else -1,
        "replicas": [node.id for node in found.replicas],
        "isr": [node.id for node in found.isr],
    }
