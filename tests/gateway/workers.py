"""Clients that write down what they were told while everything around them fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.gateway.history import History

__all__ = ["Reader", "Worker", "Writer", "read_log", "wait_until"]


class Worker:
    """A thread that works until it is told to stop; what it raises is raised by `stop`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stopping.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self._error is not None:
            raise self._error

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def _work(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """An idempotent producer that sends numbered messages to all partitions, at a steady rate."""

    def __init__(self, name: str, servers: str, topic: str, partitions: int, history: History, per_second: int) -> None:
        super().__init__(name)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 2,
            }
        )
        self._topic, self._partitions, self._history, self._pause_s = topic, partitions, history, 1 / per_second
        self._outcomes: dict[str, tuple[int, KafkaError | None, int | None]] = {}
        self._order: list[tuple[str, int]] = []

    def _work(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value, partition = f"{self.name}-{number}", number % self._partitions
            self._order.append((value, partition))
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._told)
            self._producer.poll(self._pause_s)  # the rate, and the place where answers are heard
            number += 1
        assert self._producer.flush(120) == 0
        for value, partition in self._order:
            _, error, offset = self._outcomes[value]
            outcome = "ok" if error is None else "unknown"  # whether it was written, nobody told us
            self._history.produced(self.name, value, partition, outcome, offset)  # type: ignore[arg-type]

    def _told(self, error: KafkaError | None, message: Message) -> None:
        value = (message.value() or b"").decode()
        self._outcomes[value] = (message.partition() or 0, error, message.offset() if error is None else None)


class Reader(Worker):
    """A member of a group that commits what it was given."""

    def __init__(self, name: str, servers: str, topic: str, group: str, history: History) -> None:
        super().__init__(name)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._topic, self._history = topic, history
        self.reached: dict[int, int] = {}

    def _work(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._assigned)
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(200, 0.2):
                    self._take(message)
                self._commit()
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        if message.error():
            return  # it goes on by itself
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        self._history.polled(self.name, partition, offset, (value or b"").decode())
        self.reached[partition] = offset + 1

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException:
            return  # of a gateway that is away, or a group that is being rebalanced; the next one covers it

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._history.assigned(self.name, [each.partition for each in partitions])


def read_log(servers: str, topic: str, partitions: int) -> dict[int, list[tuple[int, str]]]:
    """Everything in a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "auditor", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    log: dict[int, list[tuple[int, str]]] = {partition: [] for partition in range(partitions)}
    left = partitions
    while left:
        message = consumer.poll(20)
        assert message is not None, "the log cannot be read to its end"
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            log[message.partition() or 0].append((offset, (message.value() or b"").decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            left -= 1
        else:
            raise KafkaException(error)
    consumer.close()
    return log


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # clients in other threads have no event for it
