"""A small blocking client of a Kafka cluster, for batches as they are: what librdkafka can neither send nor fetch.

with borrow_client(cluster) as client:
    topic = client.topic("orders")
    client.post_batch(topic, 0, batch)          # up to five of a partition may be under way
    produced = client.take_batch(topic, 0)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

import msgspec

from headgate.model import ConnectError, HeadgateError, ProtocolError, StateError
from headgate.shadow.cluster import Cluster
from headgate.shadow.connection import Connection
from headgate.shadow.errors import kafka_error
from headgate.wire.kafka.batch import BatchHeader, check_crc, split_batches
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest, MetadataResponse
from headgate.wire.kafka.messages.fetch import FETCH, FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from headgate.wire.kafka.messages.offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headgate.wire.kafka.messages.produce import (
    INIT_PRODUCER_ID,
    PRODUCE,
    InitProducerIdRequest,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from headgate.wire.kafka.schema import NO_UUID

__all__ = ["IN_FLIGHT", "Client", "ExtTopic", "batches_of", "borrow_client", "close_idle_clients"]

_P = TypeVar("_P")
IN_FLIGHT = 5  # a broker recognises the last five batches of a producer when they come again
_EARLIEST, _LATEST = -2, -1
_BY_ID = 13  # from this version on, Produce and Fetch name topics by their ids
_FETCH_WAIT_MS = 500
_MAX_IDLE = 4
_IDLE_S = 60.0  # brokers close connections that nobody uses
_BUSY = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_PAUSE_S = 0.05
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class ExtTopic(msgspec.Struct, frozen=True):
    """A topic of the cluster: its id, if the cluster tells one, and the leader of each partition."""

    name: str
    uuid: UUID | None
    leaders: tuple[int, ...]  # node ids, by partition; -1 where there is none now
    epochs: tuple[int, ...] = ()  # of the leaders; -1 where the cluster tells none


def batches_of(told: FetchedPartition) -> list[tuple[BatchHeader, bytes]]:
    """Return the whole batches of an answer to `Client.fetch`, each with its header; their checksums are checked."""
    records = told.records
    assert not isinstance(records, tuple)
    found = []
    for header, batch in split_batches(records or b"", allow_partial=True):
        check_crc(batch, header)
        found.append((header, bytes(batch)))
    return found


class Client:
    """Connections to the brokers of one cluster, opened when they are needed. For one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seen_cluster_id = ""  # what the cluster called itself the last time
        self._connections: dict[int | None, Connection] = {}  # None: whoever answered first
        self._addresses: dict[int, tuple[str, int]] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def cluster_id(self) -> str:
        """Return what the cluster calls itself."""
        self._metadata(())
        return self.seen_cluster_id

    def topics(self) -> dict[str, ExtTopic]:
        """Return all topics that the user may see."""
        return {each.name: each for each in self._found(self._metadata(None))}

    def topic(self, name: str) -> ExtTopic | None:
        """Return a topic; None if there is none."""
        answer = self._metadata((name,))
        for told in answer.topics:
            if told.error_code and told.error_code not in (*_NOT_YET, ErrorCode.LEADER_NOT_AVAILABLE):
                raise kafka_error(told.error_code, f"topic {name}")
        return next((each for each in self._found(answer) if each.name == name), None)

    def producer_id(self) -> int:
        """Return a new producer id, which the cluster gives to nobody else."""
        deadline = time.monotonic() + self.cluster.timeout_s
        while True:
            answer = self.any_broker().call(INIT_PRODUCER_ID, InitProducerIdRequest(None, 2**31 - 1))
            if not answer.error_code:
                return answer.producer_id
            if answer.error_code not in _BUSY or time.monotonic() > deadline:
                raise kafka_error(answer.error_code, self.cluster.servers)
            time.sleep(_PAUSE_S)  # a broker that has just started gets some ids from the controller; nothing tells when

    def bounds(self, topic: ExtTopic, partition: int, *, committed: bool = False) -> tuple[int, int]:
        """Return the first offset of a partition and the next; `committed`: the last stable one instead of that."""
        first, end = (self._offset(topic, partition, at, committed=committed) for at in (_EARLIEST, _LATEST))
        return first, end

    def end_offset(self, topic: ExtTopic, partition: int) -> int:
        """Return the offset that the next message of a partition gets."""
        return self._offset(topic, partition, _LATEST, committed=False)

    def _offset(self, topic: ExtTopic, partition: int, at: int, *, committed: bool) -> int:
        asked = ListOffsetsTopic(topic.name, (ListOffsetsPartition(partition, timestamp=at),))
        request = ListOffsetsRequest(-1, int(committed), (asked,), timeout_ms=int(self.cluster.timeout_s * 1000))
        answer = self._leader(topic, partition).call(LIST_OFFSETS, request)
        told = _only(_only(answer.topics).partitions)
        if told.error_code:
            raise kafka_error(told.error_code, f"topic {topic.name}")
        return told.offset

    def fetch(
        self, topic: ExtTopic, partition: int, offset: int, *, committed: bool = False, max_bytes: int = 4 << 20
    ) -> FetchedPartition:
        """Return batches from an offset on, as they are stored; the first may begin before it."""
        connection = self._leader(topic, partition)
        version = connection.version(FETCH, FETCH.last if topic.uuid else _BY_ID - 1)
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        named = FetchTopic(topic.name, topic.uuid or NO_UUID, (wanted,))
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=(named,),
        )
        answer = connection.call(FETCH, request, version)
        if answer.error_code:
            raise kafka_error(answer.error_code, f"topic {topic.name}")
        told = _only(_only(answer.responses).partitions)
        if told.error_code:
            raise kafka_error(told.error_code, f"topic {topic.name}")
        return told

    def post_batch(self, topic: ExtTopic, partition: int, batch: bytes) -> None:
        """Send one batch; its answer is the next that `take_batch` returns for this partition."""
        connection = self._leader(topic, partition)
        version = connection.version(PRODUCE, PRODUCE.last if topic.uuid else _BY_ID - 1)
        named = ProduceTopic(topic.name, topic.uuid or NO_UUID, (ProducePartition(partition, batch),))
        connection.post(PRODUCE, ProduceRequest(None, -1, int(self.cluster.timeout_s * 1000), (named,)), version)

    def take_batch(self, topic: ExtTopic, partition: int) -> ProducedPartition:
        """Wait for the answer to the oldest batch under way; what went wrong with the batch is in it."""
        answer = self._leader(topic, partition).take()
        produced: ProducedPartition = _only(_only(answer.responses).partition_responses)
        return produced

    def _metadata(self, names: tuple[str, ...] | None) -> MetadataResponse:
        asked = None if names is None else tuple(AskedTopic(name=name) for name in names)
        answer = self.any_broker().call(METADATA, MetadataRequest(asked, allow_auto_topic_creation=False))
        if answer.error_code:
            raise kafka_error(answer.error_code, self.cluster.servers)
        self.seen_cluster_id = answer.cluster_id or ""
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def _found(self, answer: MetadataResponse) -> Iterator[ExtTopic]:
        for told in answer.topics:
            if told.name and told.partitions:
                leaders = {each.partition_index: each.leader_id for each in told.partitions}
                epochs = {each.partition_index: each.leader_epoch for each in told.partitions}
                every = range(max(leaders) + 1)
                yield ExtTopic(
                    told.name,
                    None if told.topic_id == NO_UUID else told.topic_id,
                    tuple(leaders.get(number, -1) for number in every),
                    tuple(epochs.get(number, -1) for number in every),
                )

    def _leader(self, topic: ExtTopic, partition: int) -> Connection:
        if partition >= len(topic.leaders):
            raise StateError(
                f"there is no {topic.name}/{partition} there",
                remedy="give both topics as many partitions: see docs/shadow.md",
            )
        node = topic.leaders[partition]
        if node not in self._addresses:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic.name}")
        return self.broker((node, *self._addresses[node]))

    def broker(self, at: tuple[int, str, int]) -> Connection:
        """Return the connection to a broker, by its node id and the address that the cluster gives for it."""
        node, host, port = at
        if node not in self._connections:
            self._connections[node] = Connection(self.cluster, host, port)
        return self._connections[node]

    def any_broker(self) -> Connection:
        """Return the connection to one of the brokers to begin with."""
        if None in self._connections:
            return self._connections[None]
        failure: HeadgateError | None = None
        for host, port in self.cluster.addresses:
            try:
                self._connections[None] = Connection(self.cluster, host, port)
            except ConnectError as error:
                failure = error
            else:
                return self._connections[None]
        assert failure is not None
        raise failure


def _only(parts: Sequence[_P]) -> _P:
    """The one part of an answer to a question about one partition."""
    if len(parts) != 1:
        raise ProtocolError(f"an answer with {len(parts)} parts instead of 1", remedy="look into the broker's log")
    return parts[0]


_lock = threading.Lock()
_idle: dict[Cluster, list[tuple[float, Client]]] = {}


@contextmanager
def borrow_client(cluster: Cluster) -> Iterator[Client]:
    """Lend a client, one of before or a new one; nothing may be under way at the end. Closed after an error."""
    client = _taken(cluster) or Client(cluster)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with _lock:
        idle = _idle.setdefault(cluster, [])
        if len(idle) < _MAX_IDLE:
            idle.append((time.monotonic(), client))
            return
    client.close()


def _taken(cluster: Cluster) -> Client | None:
    with _lock:
        idle = _idle.get(cluster)
        if not idle:
            return None
        since, client = idle.pop()
    if time.monotonic() - since < _IDLE_S:
        return client
    client.close()
    return None


def close_idle_clients() -> None:
    """Close what nobody has borrowed."""
    with _lock:
        clients = [client for idle in _idle.values() for _, client in idle]
        _idle.clear()
    for client in clients:
        client.close()


def _forget_after_fork() -> None:
    """A connection belongs to the process that opened it."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
