"""The other cluster, as a cut-over asks it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec

from headgate.model import ConnectError
from headgate.shadow.client import borrow_client
from headgate.shadow.cluster import Cluster
from headgate.shadow.coordinators import committed_offsets
from headgate.shadow.errors import kafka_error
from headgate.shadow.topics import admin_client

__all__ = ["Coordinator", "Group", "Place", "Target", "TargetTopic"]

_log = logging.getLogger(__name__)
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
Place = tuple[str, int]  # a topic and the number of a partition


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic as the other cluster describes it; the leader of each partition with its epoch."""

    name: str
    topic_id: UUID
    partitions: tuple[dict[str, int], ...]


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
    """The cluster that topics move to. What goes wrong is a `HeadgateError` with a remedy."""

    def __init__(self, cluster: Cluster) -> None:
        self.reached = cluster
        self.servers = cluster.servers
        self._timeout_s = cluster.timeout_s
        self._admin: Any = admin_client(cluster)

    def cluster(self) -> dict[str, Any]:
        """Return the cluster's id, controller and brokers, as `kafka.moves` keeps them."""
        found = self._wait(self._admin.describe_cluster(request_timeout=self._timeout_s), "the cluster")
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller.id if found.controller is not None else -1,
            "brokers": [
                {"node_id": node.id, "host": node.host, "port": node.port, "rack": node.rack} for node in found.nodes
            ],
        }

    def topics(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those topics that exist there, by name."""
        with borrow_client(self.reached) as client:
            found = [topic for name in names if (topic := client.topic(name)) is not None]
        return {
            topic.name: TargetTopic(
                topic.name,
                topic.uuid or UUID(int=0),
                tuple(
                    {"leader": leader, "leader_epoch": epoch}
                    for leader, epoch in zip(topic.leaders, topic.epochs, strict=True)
                ),
            )
            for topic in found
        }

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offset behind the last record of each partition."""
        asked = {TopicPartition(*place): _LATEST for place in places}
        answers = self._admin.list_offsets(asked, request_timeout=self._timeout_s)
        return {(at.topic, at.partition): self._wait(future, at.topic).offset for at, future in answers.items()}

    def group(self, group_id: str) -> Group:
        """Return a group's members and coordinator. One that nobody has used yet has no members."""
        asked = self._admin.describe_consumer_groups([group_id], request_timeout=self._timeout_s)
        found = self._wait(asked[group_id], f"group {group_id}")
        node = found.coordinator
        return Group(len(found.members), None if node is None else Coordinator(node.id, node.host, node.port))

    def offsets(self, group_id: str) -> dict[Place, int]:
        """Return the offsets that a group has committed there."""
        with borrow_client(self.reached) as client:
            return committed_offsets(client, group_id)

    def reader(self) -> Any:
        """Return a consumer of whole partitions, which commits nothing."""
        settings = {
            **self.reached.librdkafka_settings(),
            "group.id": "headgate-verify",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        return Consumer(settings, logger=_log)

    def _wait(self, future: Any, where: str) -> Any:
        try:
            return future.result(self._timeout_s + 1)
        except KafkaException as error:
            raise kafka_error(error.args[0].code(), where, error.args[0].str()) from None
        except TimeoutError:
            raise ConnectError(
                f"no answer within {self._timeout_s:g} s", where=self.servers, remedy="check that its brokers run"
            ) from None
