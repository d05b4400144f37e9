"""Topics at the other cluster: made as they are here, with librdkafka's client for administrators."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.model import DeliveryError
from headgate.shadow.client import Client, ExtTopic
from headgate.shadow.cluster import Cluster
from headgate.shadow.errors import kafka_error

__all__ = ["admin_client", "await_topic", "configs_there", "make_topic"]

_PAUSE_S = 0.02
_log = logging.getLogger(__name__)
# Those that mean the same there. Records keep their times while they are mirrored, so nobody else may date them, and
# batches stay compressed as they are.
_COPIED = frozenset(
    {
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "max.message.bytes",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "delete.retention.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "segment.ms",
        "segment.bytes",
    }
)


def admin_client(cluster: Cluster) -> AdminClient:
    """Return an administrator's client; it connects when it is asked."""
    return AdminClient(cluster.librdkafka_settings(), logger=_log)


def configs_there(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a topic gets at the other cluster."""
    return {name: value for name, value in configs.items() if name in _COPIED} | {
        "message.timestamp.type": "CreateTime",
        "compression.type": "producer",
    }


def _is_led(client: Client, topic: ExtTopic) -> bool:
    """Whether every partition has a leader that knows of it."""
    try:
        return all(client.end_offset(topic, partition) >= 0 for partition in range(len(topic.leaders)))
    except DeliveryError:
        return False


def make_topic(client: Client, name: str, partitions: int, configs: Mapping[str, str], replicas: int = -1) -> ExtTopic:
    """Make a topic and return it; if somebody was faster, return theirs."""
    timeout_s = client.cluster.timeout_s
    wanted = NewTopic(name, partitions, replicas, config=configs_there(configs))
    admin = admin_client(client.cluster)
    future = admin.create_topics([wanted], operation_timeout=timeout_s, request_timeout=timeout_s)[name]
    try:
        future.result(timeout_s + 1)
    except (KafkaException, TimeoutError) as error:
        told = error.args[0] if isinstance(error, KafkaException) else None
        if told is None or told.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise kafka_error(told.code() if told else 7, f"topic {name}", told.str() if told else None) from None
    return await_topic(client, name)


def await_topic(client: Client, name: str) -> ExtTopic:
    """Return a topic that was made just now, once each of its partitions has a leader that knows of it."""
    deadline = time.monotonic() + client.cluster.timeout_s
    while time.monotonic() < deadline:  # brokers learn of a new topic one after the other
        found = client.topic(name)
        if found is not None and _is_led(client, found):
            return found
        time.sleep(_PAUSE_S)
    raise DeliveryError(
        f"the topic {name} was made and is not there", where=client.cluster.servers, remedy="it is tried again"
    )
