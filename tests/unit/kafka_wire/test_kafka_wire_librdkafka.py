"""librdkafka talks to a broker of one partition that is nothing but this codec and a list of batches."""

from __future__ import annotations

import contextlib
import socketserver
import sys
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.wire.kafka import (
    APIS,
    NO_UUID,
    Body,
    Codec,
    FrameSplitter,
    Record,
    check_crc,
    decode_request,
    encode_batch,
    encode_response,
    placed,
    read_records,
    split_batches,
)
from headgate.wire.kafka.messages.cluster import Broker as BrokerMetadata
from headgate.wire.kafka.messages.cluster import (
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from headgate.wire.kafka.messages.commits import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from headgate.wire.kafka.messages.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from headgate.wire.kafka.messages.membership import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from headgate.wire.kafka.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceResponse,
)
from headgate.wire.kafka.messages.session import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headgate.wire.kafka.messages.topics import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse

_TOPIC, _TOPIC_ID = "t", UUID(int=7)
_SECONDS = 20.0


class Broker(socketserver.ThreadingTCPServer):
    """Answers the requests that a producer, a consumer and an administrator send."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.batches: list[bytes] = []
        self.end = 0
        self.grown = threading.Condition()
        self.used: set[tuple[str, int]] = set()
        self.failures: list[BaseException | None] = []

    def handle_error(self, request: object, client_address: object) -> None:
        self.failures.append(sys.exc_info()[1])

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port

    def append(self, batch: bytes | memoryview) -> int:
        with self.grown:
            base = self.end
            (header,) = (header for header, _ in split_batches(batch))
            check_crc(batch, header)
            self.batches.append(placed(batch, base, 0))
            self.end += header.last_offset_delta + 1
            self.grown.notify_all()
            return base

    def answer(self, body: Body) -> Body:
        match body:
            case ApiVersionsRequest():
                # From 0 on, or librdkafka does not compress.
                keys = (
                    ApiVersion(api_key=a.key, min_version=0 if a.key == 0 else a.first, max_version=a.last)
                    for a in APIS.values()
                )
                return ApiVersionsResponse(api_keys=tuple(keys))
            case MetadataRequest():
                return self._metadata()
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=41, producer_epoch=0)
            case FindCoordinatorRequest():
                here = Coordinator(key="", node_id=1, host="127.0.0.1", port=self.port)
                return FindCoordinatorResponse(coordinators=(here,), node_id=1, host="127.0.0.1", port=self.port)
            case CreateTopicsRequest():
                return CreateTopicsResponse(topics=tuple(CreatedTopic(name=topic.name) for topic in body.topics))
            case OffsetCommitRequest():
                return _committed(body)
            case ProduceRequest():
                return self._produce(body)
            case FetchRequest():
                return self._fetch(body)
        raise AssertionError(body)

    def _metadata(self) -> MetadataResponse:
        partition = PartitionMetadata(partition_index=0, leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
        return MetadataResponse(
            brokers=(BrokerMetadata(node_id=1, host="127.0.0.1", port=self.port),),
            cluster_id="test",
            controller_id=1,
            topics=(TopicMetadata(name=_TOPIC, topic_id=_TOPIC_ID, partitions=(partition,)),),
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert partition.records is not None
        produced = ProducedPartition(base_offset=self.append(partition.records))
        answer = ProducedTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=(produced,))
        return ProduceResponse(responses=(answer,))

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        if not request.topics:
            return FetchResponse()
        (topic,) = request.topics
        offset = topic.partitions[0].fetch_offset
        with self.grown:
            self.grown.wait_for(lambda: self.end > offset, request.max_wait_ms / 1000)
            wanted = [
                batch for batch in self.batches for header, _ in split_batches(batch) if header.last_offset >= offset
            ]
            fetched = FetchedPartition(high_watermark=self.end, last_stable_offset=self.end, records=b"".join(wanted))
        answer = FetchedTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=(fetched,))
        assert topic.topic_id in (NO_UUID, _TOPIC_ID)
        return FetchResponse(responses=(answer,))


def _committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    (topic,) = request.topics
    partitions = tuple(CommittedPartition(partition_index=each.partition_index) for each in topic.partitions)
    return OffsetCommitResponse(topics=(CommittedTopic(name=topic.name, partitions=partitions),))


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # clients leave when they please
            self._serve()

    def _serve(self) -> None:
        assert isinstance(self.server, Broker)
        splitter = FrameSplitter()
        while data := self.request.recv(65536):
            splitter.feed(data)
            for frame in splitter.frames():
                request = decode_request(frame)
                api = request.header.api
                assert api is not None
                self.server.used.add((api.name, request.header.api_version))
                self.request.sendall(b"".join(encode_response(request.header, self.server.answer(request.body))))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
        assert not server.failures


def client_settings(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{broker.port}", "broker.address.family": "v4"}


def consumed(broker: Broker, count: int) -> list[Message]:
    consumer = Consumer(client_settings(broker) | {"group.id": "g", "fetch.wait.max.ms": 50, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        found = consumer.consume(count, timeout=_SECONDS)
        assert [message.error() for message in found] == [None] * count
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_what_librdkafka_sends_is_read_and_comes_back_to_it(broker: Broker, codec: Codec) -> None:
    headers: list[tuple[str, Any]] = [("a", b"1"), ("a", None), ("b", b"")]
    values = [b"value %d " % n * 40 for n in range(20)]
    producer = Producer(
        client_settings(broker) | {"compression.type": codec.name.lower(), "linger.ms": 100, "enable.idempotence": True}
    )
    for value in values:
        producer.produce(_TOPIC, value, b"key", partition=0, headers=headers, timestamp=1234)
    assert producer.flush(_SECONDS) == 0

    records = [record for batch in broker.batches for record in read_records(batch)]
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(20))
    assert {(record.key, record.timestamp, record.headers) for record in records} == {(b"key", 1234, tuple(headers))}
    (header, _), *_ = split_batches(broker.batches[0])
    assert (header.codec, header.producer_id, header.base_sequence) == (codec, 41, 0)

    found = consumed(broker, len(values))
    assert [message.value() for message in found] == values
    assert found[0].headers() == headers


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_librdkafka_reads_batches_of_ours(broker: Broker, codec: Codec) -> None:
    noise = bytes(range(256)) * 40
    records = [Record(n, 1000 + n, b"k", noise * n, (("h", None),)) for n in range(60)]
    broker.append(encode_batch(records, codec=codec))
    found = consumed(broker, len(records))
    assert [(message.offset(), message.timestamp()[1], message.value()) for message in found] == [
        (record.offset, record.timestamp, record.value) for record in records
    ]
    assert found[0].headers() == [("h", None)]
    versions = dict(broker.used)
    assert versions["Fetch"] >= 13  # by topic id


def test_an_administrator_creates_a_topic(broker: Broker) -> None:
    admin = AdminClient(client_settings(broker))
    future = admin.create_topics([NewTopic("new", num_partitions=3, replication_factor=1)])["new"]
    assert future.result(_SECONDS) is None
    assert "CreateTopics" in dict(broker.used)
