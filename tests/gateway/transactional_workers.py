"""Transactional clients that write down what they were told while everything around them fails."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer

from tests.gateway.transactions import Ended, Transaction, TransactionHistory
from tests.gateway.workers import Worker

__all__ = ["Copier", "TransactionReader", "TransactionWriter"]

_TIMEOUT_S, _PATIENCE_S = 10.0, 120.0


def _persistently(call: Callable[[float], object], is_over: Callable[[], bool] = lambda: False) -> None:
    """Call again as long as the client says that this may help."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call(_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline or is_over():
                raise
        else:
            return


def _producer(servers: str, name: str) -> Producer:
    """With its transactional id. Whatever it had left open is aborted."""
    while True:
        made = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "transaction.timeout.ms": 20_000,
                "reconnect.backoff.max.ms": 500,
                "linger.ms": 0,
            }
        )
        try:
            _persistently(made.init_transactions)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
        else:
            return made


class TransactionWriter(Worker):
    """Transactions of some messages to every partition; some of them it aborts."""

    def __init__(self, name: str, servers: str, topic: str, partitions: int, history: TransactionHistory) -> None:
        super().__init__(name)
        self._servers, self._topic, self._partitions, self._history = servers, topic, partitions, history
        self._dice = random.Random(name)
        self._producer: Producer | None = None

    def _work(self) -> None:
        number = 0
        while not self._stopping.is_set():
            if self._producer is None:
                self._producer = _producer(self._servers, self.name)
            places = [partition for partition in range(self._partitions) for _ in range(self._dice.randint(1, 3))]
            values = tuple((partition, f"{self.name}-{number}-{at}") for at, partition in enumerate(places))
            self._history.done[self.name].append(Transaction(values, self._run(self._producer, values)))
            number += 1
        self._producer = None if self._producer is None else self._producer
        if self._producer is not None:
            self._producer.flush(_PATIENCE_S)

    def _run(self, producer: Producer, values: tuple[tuple[int, str], ...]) -> Ended:
        commits = self._dice.random() < 0.7
        is_ending = False
        try:
            producer.begin_transaction()
            for partition, value in values:
                producer.produce(self._topic, value, partition=partition)
            if not commits:
                _persistently(producer.abort_transaction)
                return "aborted"
            is_ending = True
            _persistently(producer.commit_transaction)
        except KafkaException as error:
            return self._after(error, is_ending)
        return "committed"

    def _after(self, error: KafkaException, is_ending: bool) -> Ended:
        """Abort what can be aborted. A producer that is of no use any more is replaced, which aborts as well."""
        producer, why = self._producer, error.args[0]
        assert producer is not None
        if why.txn_requires_abort() and not why.fatal():
            try:
                _persistently(producer.abort_transaction)
            except KafkaException:
                pass
            else:
                return "aborted"
        self._producer = None
        return "unknown" if is_ending else "aborted"


class TransactionReader(Worker):
    """Reads what is committed, and writes it down."""

    def __init__(self, name: str, servers: str, topic: str, history: TransactionHistory) -> None:
        super().__init__(name)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"readers-{name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._topic, self._history = topic, history

    def _work(self) -> None:
        self._consumer.subscribe([self._topic])
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(200, 0.2):
                    if message.error() is None:
                        self._history.seen[self.name].append(_seen(message))
        finally:
            self._consumer.close()


def _seen(message: Message) -> tuple[int, int, str]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset, (message.value() or b"").decode()


class Copier(Worker):
    """A member of a group that copies a topic, each batch with its place in one transaction."""

    def __init__(self, name: str, servers: str, source: str, target: str) -> None:
        super().__init__(name)
        self._servers, self._source, self._target = servers, source, target
        self.copied = 0

    def _work(self) -> None:
        while not self._stopping.is_set():
            producer, consumer = _producer(self._servers, self.name), self._subscribed()
            try:
                while not self._stopping.is_set() and self._copy(producer, consumer):
                    pass
            finally:
                consumer.close()

    def _subscribed(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "copiers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
            }
        )
        consumer.subscribe([self._source])
        return consumer

    def _copy(self, producer: Producer, consumer: Consumer) -> bool:
        """Whether all went well. If not, who begins again reads from where the last transaction ended."""
        messages = [message for message in consumer.consume(100, 0.5) if message.error() is None]
        if not messages:
            return True
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self._target, message.value(), partition=message.partition() or 0)
            places = consumer.position(consumer.assignment())
            known = [place for place in places if place.offset >= 0]
            group = consumer.consumer_group_metadata()
            _persistently(lambda timeout_s: producer.send_offsets_to_transaction(known, group, timeout_s))
            _persistently(producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                try:
                    _persistently(producer.abort_transaction)
                except KafkaException:
                    return False  # the next producer with this id does it
            return False
        self.copied += len(messages)
        return True
