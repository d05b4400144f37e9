"""Whole batches of topics of a Kafka cluster, as its brokers store them: what librdkafka does not give."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from headgate.commitlog.read import Isolation, Stored
from headgate.model import StateError, UsageError
from headgate.shadow.client import Client, ExtTopic, batches_of
from headgate.shadow.cluster import Cluster
from headgate.sources.kafka.offsets import Bounds, Partition, Range
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.kafka.whole import Facts, Whole, to_rows

__all__ = ["KafkaBatches"]


class KafkaBatches:
    """The topics that the options name, as far as transactions are over. Picklable without its connections."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._open: Client | None = None

    def bounds(self) -> dict[Partition, Bounds]:
        """Every partition with its first offset and the last stable one."""
        client = self._client()
        return {
            Partition(topic.name, number): Bounds(*client.bounds(topic, number, committed=True))
            for topic in self._topics()
            for number in range(len(topic.leaders))
        }

    def _topics(self) -> list[ExtTopic]:
        known = self._client().topics()
        names = [name.strip() for name in self._options.subscribe.split(",") if name.strip()]
        if not names:
            pattern = _compiled(self._options.subscribe_pattern)
            names = [name for name in sorted(known) if pattern.fullmatch(name) and not name.startswith("__")]
        missing = [name for name in names if name not in known]
        if missing:
            raise StateError(f"there is no topic {missing[0]}", remedy="create it, or correct the name")
        return [known[name] for name in names]

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        """Batches whose last message is in the range, so that each is in one; then how far that goes."""
        (name, number), offset, end = wanted
        client = self._client()
        topic = client.topic(name)
        if topic is None:
            raise StateError(f"there is no topic {name} any more", remedy="it was deleted; reset the pipeline")
        facts = Facts(client.seen_cluster_id, client.cluster.servers, topic.uuid, len(topic.leaders))
        yield to_rows(wanted.partition, [facts.at(offset)])
        done = offset
        while offset < end:
            told = client.fetch(topic, number, offset, committed=True)
            isolation = Isolation((each.producer_id, each.first_offset) for each in told.aborted_transactions or ())
            stored = [Stored(header.base_offset, header.last_offset, data) for header, data in batches_of(told)]
            offset = stored[-1].last_offset + 1 if stored else end
            shown = [each for each in stored if isolation.shows(each)]
            whole = [Whole(*_fields(each)) for each in shown if each.last_offset < end]
            done = min([offset, end, *(each.base_offset for each in shown if each.last_offset >= end)])
            if whole:
                yield to_rows(wanted.partition, whole)
        done = max(done, wanted.start)
        yield to_rows(wanted.partition, [Whole(done, done, b"")])

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _client(self) -> Client:
        if self._open is None:
            settings = dict(self._options.settings)
            self._open = Client(Cluster.from_librdkafka(settings, self._options.request_timeout_ms / 1000))
        return self._open

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_open": None}


def _fields(batch: Stored) -> tuple[int, int, bytes]:
    return batch.base_offset, batch.last_offset, batch.data


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"subscribePattern: {error}", remedy="give a regular expression") from None
