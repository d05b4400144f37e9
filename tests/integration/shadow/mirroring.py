"""A mirror as its pipeline drives it, without Spark: the reader's plan, task by task, to the destination's senders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.cimpl import TopicPartition

from headgate.destinations.base import Destination, SendResult
from headgate.destinations.log import LogDestination
from headgate.destinations.shadow import ShadowDestination
from headgate.model import HeadgateError, Retry, record
from headgate.shadow.cluster import Cluster
from headgate.sources.kafka.datasource import WholeBatchesReader
from headgate.sources.kafka.options import KafkaSourceOptions
from headgate.sources.kafka.whole_cluster import KafkaBatches
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.log.tables import LogTables

__all__ = ["Mirror", "WayBack", "consumed", "offsets_by_map"]

TIMEOUT_S = 30.0


class Driven:
    """A reader and a destination, driven as Spark would."""

    name: str
    destination: Destination
    reached: dict[str, Any] | None = None

    def _reader(self) -> WholeBatchesReader:
        raise NotImplementedError

    def run(self) -> SendResult:
        """Mirror what there is; what fails is not noted as done, and comes again."""
        reader = self._reader()
        start = self.reached if self.reached is not None else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        total = SendResult(self.name, 0, 0)
        for task in reader.partitions(start, end):
            with self.destination.open() as sender:
                for batch in reader.read(task):
                    sender.send(delivered(batch))
                total = total.plus(sender.finish())
        self.reached = end
        reader.stop()
        return total

    def to_the_end(self) -> SendResult:
        """Mirror until nothing is new."""
        total = self.run()
        while (more := self.reached) is not None:
            total = total.plus(self.run())
            if self.reached == more:
                return total
        raise AssertionError


class WayBack(Driven):
    """One link from a cluster into a database."""

    def __init__(self, url: str, servers: str, topics: str, *, name: str = "back") -> None:
        self.name = name
        self.destination = LogDestination(name, url, batches=True)
        options = {"kafka.bootstrap.servers": servers, "subscribePattern": topics, "unit": "batches"}
        self._options = KafkaSourceOptions.from_spark(options)

    def _reader(self) -> WholeBatchesReader:
        return WholeBatchesReader(KafkaBatches(self._options), self._options)


class Mirror(Driven):
    """One link from a database to a cluster."""

    def __init__(self, url: str, servers: str, *, name: str = "mirror", topics: str = ".*", **more: Any) -> None:
        cluster = Cluster(servers=servers, **more.pop("cluster", {}))
        self.url, self.name = url, name
        self.destination: ShadowDestination = ShadowDestination(name, url, cluster, **more)
        self._options = LogSourceOptions.from_spark({"url": url, "subscribePattern": topics, "unit": "batches"})

    def ensure(self) -> Mirror:
        self.destination.ensure()
        return self

    def _reader(self) -> WholeBatchesReader:
        return WholeBatchesReader(LogTables(self._options), self._options)


def delivered(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = pc.binary_join_element_wise("test-source", batch.column(record.POSITION), "-")
    columns = [batch.column(record.TOPIC), ids, batch.column(record.PAYLOAD)]
    return pa.RecordBatch.from_arrays(columns, list(record.DELIVERY_COLUMNS))


def consumed(servers: str, topic: str, partitions: int, **settings: Any) -> list[list[tuple[Any, ...]]]:
    """All committed messages of a topic, by partition: offset, key, value, headers, time."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **settings,
        }
    )
    found: list[list[tuple[Any, ...]]] = [[] for _ in range(partitions)]
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        for message in _until_ends(consumer, partitions):
            one = (message.offset(), message.key(), message.value(), message.headers() or [], message.timestamp())
            found[message.partition()].append(one)
    finally:
        consumer.close()
    return found


def _until_ends(consumer: Any, partitions: int) -> Iterator[Any]:
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"only {ended} of {partitions} have ended"
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise AssertionError(error)


def offsets_by_map(url: str, topic: str, partition: int, offsets: list[int], link: str = "mirror") -> list[int | None]:
    """What the map says of offsets of the log."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select kafka.shadow_offset(%s, %s, %s, o) from unnest(%s::bigint[]) with ordinality as u(o, n) order by n",
            [link, topic, partition, offsets],
        ).fetchall()
    return [offset for (offset,) in rows]


def main() -> None:
    """Mirror until there is nothing new, in a process that may be killed: database, brokers."""
    url, servers = sys.argv[1:3]
    mirror = Mirror(url, servers).ensure()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        try:
            mirror.to_the_end()
        except HeadgateError as error:
            if error.retry is not Retry.BACKOFF:
                raise
        if "--once" in sys.argv:
            return


if __name__ == "__main__":
    main()
