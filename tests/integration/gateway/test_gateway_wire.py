"""The gateway on the wire: order, bytes that are none, clients that do not read, limits, and its end."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.gateway.handlers import HANDLERS
from headgate.wire.kafka import APIS, Api, encode_request, split_batches
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from headgate.wire.kafka.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headgate.wire.kafka.messages.offsets import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    LeaderEpochPartition,
    LeaderEpochTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
)
from headgate.wire.kafka.messages.produce import INIT_PRODUCER_ID, PRODUCE, InitProducerIdRequest
from headgate.wire.kafka.messages.session import API_VERSIONS, ApiVersionsRequest
from headgate.wire.kafka.messages.topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tests.gateway.raw import RawClient, fetch_request, produce_request
from tests.gateway.servers import GatewayThread, running

VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture
def client(gateway: GatewayThread) -> Iterator[RawClient]:
    with RawClient(gateway.port) as connected:
        yield connected


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.01)


# -- ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_what_is_offered_is_what_is_served(client: RawClient, version: int) -> None:
    answer = client.ask(API_VERSIONS, version, VERSIONS)
    assert answer.error_code == 0
    assert {APIS[each.api_key].request for each in answer.api_keys} == set(HANDLERS)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert offered[PRODUCE.key] == (0, PRODUCE.last)
    assert offered[LIST_OFFSETS.key] == (0, LIST_OFFSETS.last)


def test_an_unknown_version_of_api_versions_is_answered_with_version_0(client: RawClient) -> None:
    client.socket.sendall(struct.pack(">ihhih", 10, API_VERSIONS.key, 99, 7, -1))
    correlation_id, answer = client.receive(API_VERSIONS, 0)
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert answer.api_keys
    assert client.ask(API_VERSIONS, 3, VERSIONS).error_code == 0


def test_software_names_are_checked(client: RawClient) -> None:
    bad = ApiVersionsRequest(client_software_name="a b", client_software_version="1")
    assert client.ask(API_VERSIONS, 3, bad).error_code == ErrorCode.INVALID_REQUEST


# -- order


def test_no_answer_with_acks_0_and_answers_in_order(client: RawClient, topic: str) -> None:
    client.create(topic)
    sent: list[tuple[Api[Any, Any], int, int]] = []
    for number in range(30):
        if number % 3 == 0:
            client.send(PRODUCE, 9, produce_request(topic, b"%d" % number, acks=0))
        elif number % 3 == 1:
            sent.append((PRODUCE, 9, client.send(PRODUCE, 9, produce_request(topic, b"%d" % number))))
        else:
            sent.append((API_VERSIONS, 3, client.send(API_VERSIONS, 3, VERSIONS)))
    got = [client.receive(api, version)[0] for api, version, _ in sent]
    assert got == [correlation_id for _, _, correlation_id in sent]
    records = client.fetch(topic).responses[0].partitions[0].records
    assert sum(header.count for header, _ in split_batches(records)) == 20


def test_pipelined_writes_keep_their_order(client: RawClient, topic: str) -> None:
    client.create(topic)
    for number in range(200):
        client.send(PRODUCE, 9, produce_request(topic, b"%d" % number))
    offsets = [client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(200)]
    assert offsets == list(range(200))


def test_a_long_poll_holds_later_answers_back(client: RawClient, topic: str) -> None:
    client.create(topic)
    fetch = client.send(FETCH, 11, fetch_request(topic, max_wait_ms=300))
    after = client.send(API_VERSIONS, 3, VERSIONS)
    assert client.receive(FETCH, 11)[0] == fetch
    assert client.receive(API_VERSIONS, 3)[0] == after


def test_acks_0_to_nowhere_closes_the_connection(client: RawClient, topic: str) -> None:
    client.send(PRODUCE, 9, produce_request(topic, b"lost", acks=0))
    assert client.receive_frame() is None


# -- what is answered


def test_an_empty_list_of_topics_is_none_and_null_is_all(client: RawClient, topic: str) -> None:
    client.create(topic)

    def names(version: int, topics: tuple[AskedTopic, ...] | None) -> set[str]:
        answer = client.ask(METADATA, version, MetadataRequest(topics=topics))
        return {each.name for each in answer.topics}

    assert topic in names(0, ())
    assert names(1, ()) == names(9, ()) == set()
    assert topic in names(1, None) & names(12, None)


@pytest.mark.parametrize("version", range(METADATA.first, METADATA.last + 1))
def test_metadata_in_every_version(client: RawClient, gateway: GatewayThread, topic: str, version: int) -> None:
    client.create(topic)
    answer = client.ask(METADATA, version, MetadataRequest(topics=(AskedTopic(name=topic),)))
    assert [(broker.host, broker.port) for broker in answer.brokers] == [("127.0.0.1", gateway.port)]
    (found,) = answer.topics
    assert (found.name, found.error_code, len(found.partitions)) == (topic, 0, 1)
    assert found.partitions[0].leader_id == answer.brokers[0].node_id
    if version >= 10:
        by_id = MetadataRequest(topics=(AskedTopic(topic_id=found.topic_id, name=None),))
        assert client.ask(METADATA, 12, by_id).topics[0].name == topic


def test_topics_are_not_made_when_the_client_does_not_want_it(client: RawClient, topic: str) -> None:
    asked = MetadataRequest(topics=(AskedTopic(name=topic),), allow_auto_topic_creation=False)
    assert client.ask(METADATA, 9, asked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    named = MetadataRequest(topics=(AskedTopic(name="no/such name"),), allow_auto_topic_creation=False)
    assert client.ask(METADATA, 9, named).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(FETCH.first, FETCH.last + 1))
def test_fetch_in_every_version(client: RawClient, topic: str, version: int) -> None:
    client.create(topic)
    client.produce(topic, b"one", b"two", b"three")
    uuid = client.ask(METADATA, 12, MetadataRequest(topics=(AskedTopic(name=topic),))).topics[0].topic_id
    # From the middle of a batch, the whole batch is returned, even if that is more than was asked for.
    wanted = FetchTopic(
        topic=topic if version < 13 else "",
        topic_id=uuid,
        partitions=(FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1),),
    )
    answer = client.ask(FETCH, version, FetchRequest(max_bytes=1, topics=(wanted,)))
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (0, 3)
    ((header, _),) = split_batches(partition.records)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (0, 2, 0)


def test_unknown_topics_are_told_at_once(client: RawClient) -> None:
    answer = client.ask(FETCH, 11, fetch_request("nowhere", max_wait_ms=20_000))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = FetchRequest(topics=(FetchTopic(partitions=(FetchPartition(partition=0),)),))
    assert client.ask(FETCH, 13, by_id).responses[0].partitions[0].error_code != 0


def _told(answer: Any) -> dict[int, tuple[int, int]]:
    """The end of each partition that an answer names, and how many batches it has of it."""
    partitions = [each for topic in answer.responses for each in topic.partitions]
    return {each.partition_index: (each.high_watermark, len(list(split_batches(each.records)))) for each in partitions}


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_fetch_session_tells_what_is_new(gateway: GatewayThread, client: RawClient, topic: str, version: int) -> None:
    client.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics=(CreatableTopic(topic, 100, 1),), timeout_ms=10_000))
    uuid = client.ask(METADATA, 12, MetadataRequest(topics=(AskedTopic(name=topic),))).topics[0].topic_id
    named = {"topic": topic} if version < 13 else {"topic_id": uuid}

    def ask(number: int, epoch: int, offsets: dict[int, int], forgotten: tuple[int, ...] = (), **options: Any) -> Any:
        partitions = tuple(
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index, offset in offsets.items()
        )
        topics = (FetchTopic(**named, partitions=partitions),) if partitions else ()
        gone = (ForgottenTopic(**named, partitions=forgotten),) if forgotten else ()
        request = FetchRequest(
            session_id=number, session_epoch=epoch, topics=topics, forgotten_topics_data=gone, min_bytes=1, **options
        )
        return client.ask(FETCH, version, request)

    whole = ask(0, 0, dict.fromkeys(range(100), 0))
    number = whole.session_id
    assert number > 0
    assert _told(whole) == dict.fromkeys(range(100), (0, 0))
    assert _told(ask(number, 1, {})) == {}
    client.ask(PRODUCE, 9, produce_request(topic, b"a", partition=7))
    client.ask(PRODUCE, 9, produce_request(topic, b"b", partition=8))
    assert _told(ask(number, 2, {}, max_wait_ms=20_000)) in ({7: (1, 1), 8: (1, 1)}, {7: (1, 1)}, {8: (1, 1)})
    assert _told(ask(number, 3, {7: 1}, (8,))) == {}
    # The right epoch once: what is sent twice, or out of order, is told so.
    assert ask(number, 3, {}).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(number + 1, 4, {}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    other_form = FetchRequest(session_id=number, session_epoch=4)
    assert client.ask(FETCH, 12 if version >= 13 else 13, other_form).error_code == (
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )
    # Another connection has no part in it.
    with RawClient(gateway.port) as stranger:
        answer = stranger.ask(FETCH, version, other_form)
        assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert _told(ask(number, 4, {99: 5})) == {99: (0, 0)}  # out of range: told again and again
    assert _told(ask(number, 5, {})) == {99: (0, 0)}
    assert _told(ask(number, -1, {0: 0})) == {0: (0, 0)}
    assert ask(number, 6, {}).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", range(LIST_OFFSETS.first, LIST_OFFSETS.last + 1))
def test_list_offsets_in_every_version(client: RawClient, topic: str, version: int) -> None:
    client.create(topic)
    client.produce(topic, b"a", b"b")

    def found(timestamp: int) -> int:
        asked = ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(timestamp=timestamp),))
        answer = client.ask(LIST_OFFSETS, version, ListOffsetsRequest(replica_id=-1, topics=(asked,)))
        partition = answer.topics[0].partitions[0]
        assert partition.error_code == 0
        return int(partition.old_style_offsets[0] if version == 0 else partition.offset)

    assert (found(-2), found(-1)) == (0, 2)
    assert found(1_700_000_000_000) == 0
    assert found(1_900_000_000_000) == (2 if version == 0 else -1)
    if version >= 7:
        assert found(-3) == 0  # both have the highest time; the first of them is named


def test_epochs_never_end(client: RawClient, topic: str) -> None:
    client.create(topic)
    client.produce(topic, b"a", b"b")

    def end(current: int, asked: int) -> tuple[int, int, int]:
        partition = LeaderEpochPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(topics=(LeaderEpochTopic(topic=topic, partitions=(partition,)),))
        got = client.ask(OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
        return got.error_code, got.leader_epoch, got.end_offset

    assert end(0, 0) == (0, 0, 2)
    assert end(-1, 5) == (0, -1, -1)
    assert end(3, 0)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_every_idempotent_producer_has_its_own_id(client: RawClient) -> None:
    first = client.ask(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    second = client.ask(INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    assert 0 <= first.producer_id < second.producer_id


def test_acks_that_do_not_exist(client: RawClient, topic: str) -> None:
    client.create(topic)
    answer = client.ask(PRODUCE, 9, produce_request(topic, b"x", acks=2))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


# -- bytes that are none


def _whole_requests() -> list[bytes]:
    """A request of every API and version that is served, as far as defaults make one."""
    return [
        b"".join(encode_request(api, version, 1, "fuzz", api.request()))[4:]
        for api in APIS.values()
        if api.request in HANDLERS
        for version in (api.first, api.last)
    ]


REAL = _whole_requests()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real request that was cut, or in which bytes were changed."""
    frame = bytearray(draw(st.sampled_from(REAL)))
    for _ in range(draw(st.integers(0, 4))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))])


FRAMED = st.one_of(st.binary(max_size=200), damaged()).map(lambda frame: struct.pack(">i", len(frame)) + frame)
LENGTHS = st.integers(-(2**31), 2**31 - 1).map(lambda length: struct.pack(">i", length) + b"rest")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=300), FRAMED, LENGTHS))
def test_any_bytes_are_answered_or_end_the_connection(gateway: GatewayThread, data: bytes) -> None:
    with RawClient(gateway.port) as client:
        client.socket.sendall(data)
        client.socket.shutdown(socket.SHUT_WR)
        while client.receive_frame() is not None:
            pass
    with RawClient(gateway.port) as client:
        assert client.ask(API_VERSIONS, 3, VERSIONS).error_code == 0


def test_every_served_request_with_defaults_is_answered(gateway: GatewayThread) -> None:
    """No handler fails on an empty request: it answers, or closes the connection on purpose."""
    before = _failures(gateway)
    for frame in REAL:
        with RawClient(gateway.port) as client:
            client.socket.sendall(struct.pack(">i", len(frame)) + frame)
            client.socket.shutdown(socket.SHUT_WR)
            client.receive_frame()
    assert _failures(gateway) == before


def _failures(gateway: GatewayThread) -> dict[str, int]:
    requests = gateway.gateway.metrics.requests
    return {api: count for (api, error), count in requests.items() if error == "UNKNOWN_SERVER_ERROR"}


# -- memory


def test_a_huge_frame_is_not_waited_for(fresh_database: str) -> None:
    with running(fresh_database, max_frame_bytes=1 << 20) as gateway, RawClient(gateway.port) as client:
        client.socket.sendall(struct.pack(">i", 1 << 30))
        assert client.receive_frame() is None


def test_frames_wait_for_memory_and_all_are_served(fresh_database: str, topic: str) -> None:
    """Ten clients send a megabyte each, with room for two: they take turns, and none is lost."""
    with running(fresh_database, max_inflight_bytes=2 << 20) as gateway, RawClient(gateway.port) as first:
        first.create(topic)
        value = bytes(900_000)
        clients = [RawClient(gateway.port) for _ in range(10)]
        most = 0
        threads = [threading.Thread(target=client.produce, args=(topic, value)) for client in clients]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, gateway.gateway.services.budget.used)
        for thread, client in zip(threads, clients, strict=True):
            thread.join()
            client.socket.close()
        # One frame may go beyond the limit, and of the others one piece each, as it comes from the network.
        assert most <= (2 << 20) + 1_000_000 + 10 * (256 << 10)
        answer = first.ask(
            LIST_OFFSETS,
            1,
            ListOffsetsRequest(
                topics=(ListOffsetsTopic(name=topic, partitions=(ListOffsetsPartition(timestamp=-1),)),)
            ),
        )
        assert answer.topics[0].partitions[0].offset == 10
        wait_for(lambda: gateway.gateway.services.budget.used == 0, "memory was not given back")


def test_a_client_that_does_not_read_costs_little(fresh_database: str, topic: str) -> None:
    with running(fresh_database, max_inflight_bytes=8 << 20) as gateway:
        with RawClient(gateway.port) as writer:
            writer.create(topic)
            for _ in range(12):
                writer.produce(topic, bytes(900_000))
        before = psutil.Process().memory_info().rss
        request = b"".join(encode_request(FETCH, 11, 1, "deaf", fetch_request(topic, max_bytes=50 << 20)))
        deaf = [RawClient(gateway.port, receive_buffer=4096) for _ in range(8)]
        for client in deaf:
            client.socket.setblocking(False)
            for _ in range(500):  # each would be answered with several megabytes
                try:
                    client.socket.send(request)
                except BlockingIOError:
                    break
        budget = gateway.gateway.services.budget
        wait_for(lambda: budget.used > 4 << 20, "the answers were not made")
        with RawClient(gateway.port) as other:  # others are served all the while
            assert other.fetch(topic).responses[0].partitions[0].error_code == 0
        assert budget.used < 32 << 20
        gc.collect()
        assert psutil.Process().memory_info().rss - before < 200 << 20
        for client in deaf:
            client.socket.close()
        wait_for(lambda: budget.used == 0, "memory was not given back")


def test_clients_that_go_at_once_leave_nothing_behind(fresh_database: str, topic: str) -> None:
    with running(fresh_database) as gateway:
        with RawClient(gateway.port) as client:
            client.create(topic)
        request = b"".join(encode_request(FETCH, 11, 1, "gone", fetch_request(topic, max_wait_ms=60_000)))
        for _ in range(50):
            with RawClient(gateway.port) as client:
                client.socket.sendall(request * 2)
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        wait_for(lambda: gateway.gateway.metrics.connections == 0, "connections were not noticed to be gone")
        wait_for(lambda: gateway.gateway.services.budget.used == 0, "memory was not given back")


def test_a_client_that_never_reads_is_cut_off(fresh_database: str, topic: str) -> None:
    with running(fresh_database, stall_timeout_s=1.0) as gateway:
        with RawClient(gateway.port) as writer:
            writer.create(topic)
            for _ in range(8):
                writer.produce(topic, bytes(900_000))
        with RawClient(gateway.port, receive_buffer=4096) as deaf:
            deaf.send(FETCH, 11, fetch_request(topic, max_bytes=50 << 20))
            wait_for(lambda: gateway.gateway.metrics.connections == 1, "not answered")
            wait_for(lambda: gateway.gateway.metrics.connections == 0, "the connection was not cut off")


def test_a_frame_that_never_ends_is_given_up(fresh_database: str) -> None:
    with running(fresh_database, stall_timeout_s=1.0) as gateway, RawClient(gateway.port) as client:
        client.socket.sendall(struct.pack(">i", 1000) + b"only this")
        assert client.receive_frame() is None
        wait_for(lambda: gateway.gateway.services.budget.used == 0, "memory was not given back")


def test_an_idle_connection_is_closed(fresh_database: str) -> None:
    with running(fresh_database, idle_timeout_s=0.5) as gateway, RawClient(gateway.port) as client:
        assert client.ask(API_VERSIONS, 3, VERSIONS).error_code == 0
        assert client.receive_frame() is None


def test_the_number_of_connections_is_limited(fresh_database: str) -> None:
    with running(fresh_database, max_connections=2) as gateway:
        wait_for(lambda: gateway.gateway.metrics.connections == 0, "the check of the address goes on")
        with RawClient(gateway.port) as first, RawClient(gateway.port) as second:
            assert first.ask(API_VERSIONS, 3, VERSIONS).error_code == 0
            assert second.ask(API_VERSIONS, 3, VERSIONS).error_code == 0
            with RawClient(gateway.port) as third:
                assert third.receive_frame() is None
        wait_for(lambda: gateway.gateway.metrics.connections == 0, "they were closed")
        with RawClient(gateway.port) as fourth:
            assert fourth.ask(API_VERSIONS, 3, VERSIONS).error_code == 0


# -- the end


def test_a_drain_finishes_what_was_accepted(fresh_database: str, topic: str) -> None:
    with running(fresh_database) as gateway, RawClient(gateway.port) as writer, RawClient(gateway.port) as reader:
        writer.create(topic)
        reader.send(FETCH, 11, fetch_request(topic, max_wait_ms=60_000))
        received = gateway.gateway.metrics.received_bytes
        size = 0
        for number in range(50):
            request = produce_request(topic, b"%d" % number)
            size += len(b"".join(encode_request(PRODUCE, 9, 1, "raw", request)))
            writer.send(PRODUCE, 9, request)
        wait_for(lambda: gateway.gateway.metrics.received_bytes >= received + size, "not received")
        started = time.monotonic()
        gateway.stop()
        assert time.monotonic() - started < 8, "a waiting reader held the end up"
        answers = [writer.receive(PRODUCE, 9)[1] for _ in range(50)]
        offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
        assert offsets == list(range(50))
        assert writer.receive_frame() is None
