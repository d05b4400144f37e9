"""Topics of a Kafka cluster: which partitions there are, how far they reach, and their messages."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headgate.model import AuthError, ConfigError, ConnectError, HeadgateError, StateError, UsageError
from headgate.sources.kafka.offsets import Bounds, Partition, Range, Reached
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.kafka.rows import header_column, to_batch

__all__ = ["KafkaTopics"]

_log = logging.getLogger(__name__)
_BATCH = 10_000
_POLL_S = 1.0
_AUTH = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError.UNKNOWN_TOPIC_OR_PART)


class KafkaTopics:
    """The topics that the options name. Opens a connection when it is first asked; picklable without it."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._consumer: Any = None

    def bounds(self) -> dict[Partition, Bounds]:
        """Every partition with its first and next offset."""
        with self._asking():
            partitions = self._partitions()
            return {each: Bounds(*self._watermarks(each)) for each in partitions}

    def _partitions(self) -> list[Partition]:
        known = self._client().list_topics(timeout=self._timeout_s).topics
        wanted = [name.strip() for name in self._options.subscribe.split(",") if name.strip()]
        if not wanted:
            pattern = _compiled(self._options.subscribe_pattern)
            wanted = [name for name in known if pattern.fullmatch(name)]
        missing = [name for name in wanted if name not in known or known[name].error]
        if missing:
            raise StateError(
                f"there is no topic {missing[0]}",
                where=dict(self._options.settings)["bootstrap.servers"],
                remedy="create it, or correct the name",
            )
        return [Partition(name, index) for name in wanted for index in sorted(known[name].partitions)]

    def _watermarks(self, partition: Partition) -> tuple[int, int]:
        found: tuple[int, int] = self._client().get_watermark_offsets(TopicPartition(*partition), self._timeout_s)
        return found

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """The messages of a range; offsets without one, such as those of compacted topics, are passed over."""
        (topic, index), start, end = wanted
        with self._asking():
            consumer = self._client()
            consumer.assign([TopicPartition(topic, index, start)])
            try:
                yield from self._messages(consumer, wanted, end)
            finally:
                consumer.unassign()

    def _messages(self, consumer: Any, wanted: Range, end: int) -> Iterator[pa.RecordBatch]:
        deadline = time.monotonic() + self._timeout_s
        while True:
            got: list[Message] = consumer.consume(_BATCH, _POLL_S)
            rows = [message for message in got if _is_row(message) and _offset(message) < end]
            if rows:
                deadline = time.monotonic() + self._timeout_s
                yield _to_batch(wanted.partition, rows)
            if got and _offset(got[-1]) >= end - 1:
                return
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"no message of {wanted.partition} came for {self._timeout_s:g} s",
                    where=dict(self._options.settings)["bootstrap.servers"],
                    remedy="check that the brokers run and answer",
                )

    def commit(self, reached: Reached) -> None:
        """Tell the group, if there is one, what was delivered."""
        if not self._options.group_id or not reached:
            return
        with self._asking():
            offsets = [TopicPartition(*partition, offset) for partition, offset in reached.items()]
            self._client().commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    @property
    def _timeout_s(self) -> float:
        return self._options.request_timeout_ms / 1000

    def _client(self) -> Any:
        if self._consumer is None:
            try:
                self._consumer = Consumer(self._options.client_settings(), logger=_log)
            except (KafkaException, TypeError, ValueError) as error:
                told = error.args[0] if error.args else error
                text = told.str() if isinstance(told, KafkaError) else str(told)
                raise ConfigError(
                    f"Kafka: {self._without_secrets(text)}", where="settings", remedy="correct the kafka.* options"
                ) from None
        return self._consumer

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._as_error(error.args[0]) from None

    def _as_error(self, error: KafkaError) -> HeadgateError:
        where = dict(self._options.settings)["bootstrap.servers"]
        message = f"Kafka: {self._without_secrets(error.str())}"
        if error.code() in _AUTH:
            return AuthError(message, where=where, remedy="check the user, its password and what it may read")
        if error.code() in _GONE:
            return StateError(message, where=where, remedy="set failOnDataLoss to false to go on without")
        return ConnectError(message, where=where, remedy="check that the brokers run and answer")

    def _without_secrets(self, text: str) -> str:
        for name, value in self._options.settings:
            if "password" in name and len(value) > 3:
                text = text.replace(value, "********")
        return text

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_consumer": None}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"subscribePattern: {error}", remedy="give a regular expression") from None


def _is_row(message: Message) -> bool:
    """The end of a partition is reported as a message with an error; other errors are raised."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._PARTITION_EOF:
        return False
    raise KafkaException(error)


def _offset(message: Message) -> int:
    """Of the end of a partition: the offset of the last message there was, so to say."""
    offset = message.offset()
    assert offset is not None
    return offset - 1 if message.error() else offset


def _to_batch(partition: Partition, messages: list[Message]) -> pa.RecordBatch:
    times = [message.timestamp() for message in messages]
    return to_batch(
        partition,
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([time for _, time in times], pa.int64()),
        # librdkafka counts from 1, with 0 for none; Kafka, and Spark's source, from 0.
        pa.array([kind - 1 for kind, _ in times], pa.int32()),
        header_column([message.headers() for message in messages]),  # type: ignore[misc]
    )
