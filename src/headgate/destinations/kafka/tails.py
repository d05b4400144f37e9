"""What lies last in each partition of a topic: how far the pipeline that writes it alone has come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, TopicPartition

from headgate.destinations.kafka.errors import kafka_error
from headgate.destinations.kafka.options import KafkaOptions
from headgate.model import ConnectError

__all__ = ["ID_HEADER", "PARTITIONS_HEADER", "Tail", "last_records"]

ID_HEADER = "headgate-id"
PARTITIONS_HEADER = "headgate-partitions"  # how many there were when the row's partition was chosen

_ONE_BEFORE_THE_END = -2001  # librdkafka's logical offset: the end, counted back by one


class Tail(NamedTuple):
    """The last record of a partition; the id is empty for a record that is not of ours."""

    message_id: str
    partitions: int


def last_records(reader: Any, options: KafkaOptions, counts: Mapping[str, int]) -> dict[tuple[str, int], Tail]:
    """The last record of every partition of these topics; an empty partition is missing from the answer."""
    waiting = {(name, partition) for name, count in counts.items() for partition in range(count)}
    reader.assign([TopicPartition(name, partition, _ONE_BEFORE_THE_END) for name, partition in waiting])
    found: dict[tuple[str, int], Tail] = {}
    deadline = time.monotonic() + options.connect_timeout_s
    while waiting:
        message: Message | None = reader.poll(max(0.0, deadline - time.monotonic()))
        if message is None:
            raise ConnectError(
                f"{len(waiting)} partitions could not be read within {options.connect_timeout_s:g} s",
                where=options.servers,
                remedy="check that the brokers run, and that the user may read the topics",
            )
        error = message.error()
        if error is None:
            found[_place(message)] = _tail(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(_place(message))
        elif not error.retriable() and error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise kafka_error(error, options.servers)
    return found


def _place(message: Message) -> tuple[str, int]:
    return str(message.topic()), int(message.partition() or 0)


def _tail(message: Message) -> Tail:
    headers = dict(message.headers() or [])
    message_id, partitions = headers.get(ID_HEADER), headers.get(PARTITIONS_HEADER)
    return Tail(_text(message_id), int(_text(partitions)) if _text(partitions).isdecimal() else 0)


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
