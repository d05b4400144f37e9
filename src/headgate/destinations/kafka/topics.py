"""Topics: how many partitions one has, and making one that is missing.

A consumer asks, because a producer that asks for a topic may create it, with settings of the brokers' choice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.destinations.base import TopicDefaults
from headgate.destinations.kafka.client import as_error, make_client
from headgate.destinations.kafka.errors import is_missing_topic, kafka_error
from headgate.destinations.kafka.options import KafkaOptions
from headgate.model import ConnectError, DeliveryError

__all__ = ["ensure_topic", "open_reader", "partition_count"]

_BROKERS_CHOICE = -1


@contextmanager
def open_reader(options: KafkaOptions) -> Iterator[Any]:
    """A consumer without a group's duties."""
    settings = {
        **options.client_settings(),
        "group.id": "headgate",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "latest",  # what lay last is gone: the partition is empty
        "fetch.wait.max.ms": 10,
    }
    reader = make_client(Consumer, options, settings)
    try:
        yield reader
    finally:
        reader.close()


def ensure_topic(reader: Any, options: KafkaOptions, name: str, defaults: TopicDefaults | None = None) -> int:
    """How many partitions a topic has, after creating it if need be; without defaults as the brokers choose."""
    count = partition_count(reader, options, name)
    if count is not None:
        return count
    _create(options, name, defaults)
    deadline = time.monotonic() + options.connect_timeout_s
    while time.monotonic() < deadline:  # brokers learn of a new topic one after the other
        count = partition_count(reader, options, name)
        if count:
            return count
    raise DeliveryError(
        f"the topic {name!r} was created and is not there", where=options.servers, remedy="this is tried again"
    )


def partition_count(reader: Any, options: KafkaOptions, name: str) -> int | None:
    """None if there is no such topic."""
    try:
        found = reader.list_topics(name, options.connect_timeout_s).topics.get(name)
    except KafkaException as error:
        raise as_error(error, options) from None
    if found is None or is_missing_topic(found.error):
        return None
    if found.error is not None and not found.error.retriable():
        raise kafka_error(found.error, options.servers)
    return len(found.partitions)


def _create(options: KafkaOptions, name: str, defaults: TopicDefaults | None) -> None:
    admin = make_client(AdminClient, options, options.client_settings())
    timeout_s = options.connect_timeout_s
    wanted = _layout(name, defaults)
    future = admin.create_topics([wanted], operation_timeout=timeout_s, request_timeout=timeout_s)[name]
    try:
        future.result(timeout_s + 1)
    except TimeoutError:
        raise ConnectError(
            f"the topic {name!r} was not created within {timeout_s:g} s",
            where=options.servers,
            remedy="check that the brokers run and answer",
        ) from None
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise as_error(error, options) from None


def _layout(name: str, defaults: TopicDefaults | None) -> NewTopic:
    if defaults is None:
        return NewTopic(name, _BROKERS_CHOICE, _BROKERS_CHOICE)
    config = {"retention.ms": str(int(defaults.max_age_s * 1000) or -1)}
    if defaults.max_bytes:
        # Kafka limits each partition by itself.
        config["retention.bytes"] = str(max(1, defaults.max_bytes // defaults.partitions))
    return NewTopic(name, defaults.partitions, defaults.replicas, config=config)
