"""One producer of librdkafka's, with what it says of its messages and its brokers.

librdkafka reports from threads of its own, but calls back only from `poll` and `flush`, hence in the sender's thread.
Reports of success are switched off: a queue that has run empty without a complaint says the same.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.destinations.kafka.errors import UNREACHABLE, kafka_error
from headgate.destinations.kafka.options import KafkaOptions
from headgate.model import AuthError, ConfigError, ConnectError, DeliveryError, HeadgateError

__all__ = ["Client", "as_error", "make_client"]

_log = logging.getLogger(__name__)
# It calls a setting experimental that it has had for years, once per producer.
_log.addFilter(lambda line: "enable.gapless.guarantee is experimental" not in line.getMessage())
_ROOM_POLL_S = 0.005  # nothing tells that the queue has room again


class Client:
    """A producer that belongs to one sender at a time. Use it from one thread."""

    def __init__(self, options: KafkaOptions, *, gapless: bool) -> None:
        self.options = options
        self.gapless = gapless
        self.refused: dict[str, tuple[int, KafkaError]] = {}  # topic in Kafka -> rows, the first complaint
        self._trouble: KafkaError | None = None
        settings = options.producer_settings(gapless=gapless)
        callbacks = {"error_cb": self._complained, "on_delivery": self._reported}
        self._producer: Any = make_client(Producer, options, {**settings, **callbacks})

    def check(self) -> None:
        """Wait for the first word of the cluster."""
        try:
            self._producer.cluster_id(self.options.connect_timeout_s)
        except KafkaException as error:
            self._producer.poll(0)
            raise self._unreachable(error.args[0]) from None

    @property
    def reusable(self) -> bool:
        """Whether nothing waits in it and nothing is known to be wrong."""
        self._producer.poll(0)
        return not len(self._producer) and not self.refused and self._trouble is None

    def produce(self, *row: Any) -> None:
        """Queue a message: topic, payload, key, partition, headers. Waits while the queue is full."""
        deadline = 0.0
        while True:
            try:
                self._producer.produce(*row[:4], headers=row[4])
                return
            except BufferError:
                deadline = deadline or time.monotonic() + self.options.delivery_timeout_s
                self._wait_for_room(deadline)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or self.gapless:
                    raise as_error(error, self.options) from None
                # Said at once if the number of partitions is known already, and else of the message later.
                self._refuse(row[0], error.args[0])
                return

    def poll(self) -> None:
        """Hear complaints."""
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until every message is stored or refused."""
        left = self._producer.flush(self.options.delivery_timeout_s)
        if left and not self.gapless:
            left = self._producer.flush(1)  # their own timeouts end about now
        if left:
            raise self._gave_up(f"{left} messages are not acknowledged after {self.options.delivery_timeout_s:g} s")
        if self.refused and (self._is_unreachable() or not self._answers()):
            raise self._gave_up("messages could not be delivered")

    def close(self) -> None:
        """Drop what is in flight, and the connections."""
        self._producer.purge()
        self._producer.flush(0)
        self._producer.close()

    def error_of(self, error: KafkaError) -> HeadgateError:
        return as_error(KafkaException(error), self.options)

    def _wait_for_room(self, deadline: float) -> None:
        self._producer.poll(_ROOM_POLL_S)
        if self.refused and self._is_unreachable():
            raise self._gave_up("messages could not be delivered")
        if time.monotonic() > deadline:
            raise self._gave_up(f"the queue has had no room for {self.options.delivery_timeout_s:g} s")

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._refuse(str(message.topic()), error)

    def _refuse(self, topic: str, error: KafkaError) -> None:
        rows, first = self.refused.get(topic, (0, error))
        self.refused[topic] = (rows + 1, first)

    def _complained(self, error: KafkaError) -> None:
        """A refusal of our credentials tells more than that the broker then hung up."""
        if self._trouble is None or not _is_auth(self._trouble):
            self._trouble = error

    def _is_unreachable(self) -> bool:
        return self._trouble is not None and (self._trouble.code() in UNREACHABLE or _is_auth(self._trouble))

    def _answers(self) -> bool:
        """Whether messages that took too long were too many, or nobody is there. Silence breaks no connection."""
        if any(error.code() != KafkaError._MSG_TIMED_OUT for _, error in self.refused.values()):
            return True
        try:
            self._producer.list_topics(timeout=self.options.connect_timeout_s)
        except KafkaException:
            return False
        return True

    def _gave_up(self, what: str) -> HeadgateError:
        if self._trouble is not None:
            return self._unreachable(self._trouble)
        return ConnectError(what, where=self.options.servers, remedy="check that the brokers run and answer")

    def _unreachable(self, error: KafkaError) -> HeadgateError:
        told = self.error_of(self._trouble or error)
        if isinstance(told, ConnectError | AuthError | DeliveryError):
            return told
        return ConnectError(told.message, where=told.where, remedy=told.remedy)


def make_client(kind: Any, options: KafkaOptions, settings: dict[str, Any]) -> Any:
    """A producer, consumer or administrator; its log lines go where ours do."""
    try:
        return kind(settings, logger=_log)
    except (KafkaException, TypeError, ValueError) as error:
        told = error.args[0] if error.args else error
        text = told.str() if isinstance(told, KafkaError) else str(told)
        raise ConfigError(
            f"Kafka: {options.without_secrets(text)}", where="settings", remedy="correct the destination's settings"
        ) from None


def as_error(error: KafkaException, options: KafkaOptions) -> HeadgateError:
    return kafka_error(error.args[0], options.servers)


def _is_auth(error: KafkaError) -> bool:
    return isinstance(kafka_error(error, ""), AuthError)
