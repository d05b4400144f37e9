"""A Kafka cluster in a process of its own: librdkafka's mock, which can be frozen and thawed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Self

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.contract.destinations.arrivals import Arrival

_SCRIPT = """
import sys
from confluent_kafka import Producer
host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
brokers = host.list_topics(timeout=10).brokers.values()
print(",".join(f"{each.host}:{each.port}" for each in brokers), flush=True)
sys.stdin.read()
"""


class MockCluster:
    """It creates topics, with 4 partitions, when a producer asks for them, and knows no other way to create one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.servers = self._process.stdout.readline().strip()
        assert self.servers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        # A signal takes its time, and every thread of the process may still answer until it has arrived.
        while psutil.Process(self._process.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline, "the cluster does not stop"
            time.sleep(0.01)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def create(self, topic: str) -> int:
        """How many partitions the topic has."""
        producer = Producer({"bootstrap.servers": self.servers})
        return len(producer.list_topics(topic, timeout=10).topics[topic].partitions)

    def arrivals(self, topic: str) -> list[Arrival]:
        """Everything in a topic, partition by partition."""
        return read_topic(self.servers, topic)


def read_topic(servers: str, topic: str) -> list[Arrival]:
    settings = {"bootstrap.servers": servers, "group.id": "test", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    consumer = Consumer({**settings, "fetch.message.max.bytes": 8_000_000})
    count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    found: dict[int, list[Arrival]] = {partition: [] for partition in range(count)}
    ended = 0
    while ended < count:
        message = consumer.poll(10)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
            continue
        headers = dict(message.headers() or [])
        arrival = Arrival(_text(headers["headgate-id"]), _bytes(message.value()), message.partition())
        found[arrival.partition or 0].append(arrival)
    consumer.close()
    return [arrival for arrivals in found.values() for arrival in arrivals]


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
