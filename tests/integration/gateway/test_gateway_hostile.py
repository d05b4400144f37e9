"""Peers that stall, lie, send bombs or do not read: the others do not notice."""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest

from headgate.wire.kafka import Record, encode_batch, encode_request
from headgate.wire.kafka.compression import Codec
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.fetch import FETCH
from headgate.wire.kafka.messages.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic
from tests.gateway.raw import RawClient, fetch_request
from tests.gateway.servers import GatewayThread, running

TIMEOUT_S = 60.0
MEGA = 1 << 20
NOW = time.time_ns() // 1_000_000


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.05)


@contextmanager
def stalled(gateway: GatewayThread, count: int, announced: int, sent: int) -> Iterator[list[RawClient]]:
    """Connections that announce much, send little, and then nothing."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(count)]
        for client in clients:
            client.socket.sendall(struct.pack(">i", announced) + bytes(sent))
        yield clients


def test_announced_frames_hold_nothing(fresh_database: str, topic: str) -> None:
    """Three that announce all there is, and stall: a large write goes at once."""
    with (
        running(fresh_database, max_inflight_bytes=8 * MEGA, max_frame_bytes=4 * MEGA) as gateway,
        stalled(gateway, 3, 4 * MEGA - 100, 100),
        RawClient(gateway.port) as client,
    ):
        client.create(topic)
        began = time.monotonic()
        assert client.produce(topic, os.urandom(900_000)).responses[0].partition_responses[0].error_code == 0
        assert time.monotonic() - began < 15
        assert gateway.gateway.services.budget.used < MEGA


def test_half_sent_frames_hold_up_nobody_for_long(fresh_database: str, topic: str) -> None:
    """They have filled all memory, and stall: small requests go at once, large ones soon."""
    options: dict[str, Any] = {"max_inflight_bytes": 8 * MEGA, "max_frame_bytes": 4 * MEGA, "stall_timeout_s": 3.0}
    with running(fresh_database, **options) as gateway, RawClient(gateway.port) as client:
        client.create(topic)
        with stalled(gateway, 6, 4 * MEGA - 100, 2 * MEGA):
            budget = gateway.gateway.services.budget
            wait_for(lambda: budget.is_short("127.0.0.1"), "they did not fill the memory")
            began = time.monotonic()
            for _ in range(20):
                assert client.produce(topic, b"small").responses[0].partition_responses[0].error_code == 0
            assert time.monotonic() - began < 15
            client.socket.settimeout(TIMEOUT_S)
            assert client.produce(topic, os.urandom(900_000)).responses[0].partition_responses[0].error_code == 0
            assert time.monotonic() - began < TIMEOUT_S
        wait_for(lambda: budget.used == 0, "memory was not given back")


def test_a_trickle_is_given_up(fresh_database: str) -> None:
    """A byte now and then is no progress."""
    with running(fresh_database, stall_timeout_s=1.0) as gateway, RawClient(gateway.port) as client:
        client.socket.sendall(struct.pack(">i", 10 * MEGA))
        wait_for(lambda: not _trickle(client), "it goes on for ever")


def _trickle(client: RawClient) -> bool:
    try:
        client.socket.sendall(b"x")
    except OSError:
        return False
    return True


def bomb(codec: Codec, size: int) -> bytes:
    return encode_batch([Record(0, NOW, value=bytes(size))], codec=codec)


def produce(client: RawClient, topic: str, batch: bytes) -> int:
    data = ProduceTopic(name=topic, partition_data=(ProducePartition(index=0, records=batch),))
    answer = client.ask(PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(data,)))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_bombs_are_refused_and_nobody_waits(fresh_database: str, topic: str, codec: Codec) -> None:
    batch = bomb(codec, 127 * MEGA if codec is not Codec.SNAPPY else 20 * MEGA)
    with running(fresh_database) as gateway, RawClient(gateway.port) as other:
        other.create(topic)
        with ExitStack() as stack:
            clients = [stack.enter_context(RawClient(gateway.port)) for _ in range(10)]
            answers: list[int] = []
            threads = [
                threading.Thread(target=lambda client=client: answers.append(produce(client, topic, batch)))
                for client in clients
            ]
            before = psutil.Process().memory_info().rss
            most_rss, slowest = 0, 0.0
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                began = time.monotonic()
                assert produce(other, topic, encode_batch([Record(0, NOW, value=b"v")])) == 0
                slowest = max(slowest, time.monotonic() - began)
                most_rss = max(most_rss, psutil.Process().memory_info().rss)
            for thread in threads:
                thread.join()
    assert set(answers) == {ErrorCode.MESSAGE_TOO_LARGE}
    assert slowest < 15
    assert most_rss - before < 300 * MEGA


def test_inflated_bytes_count(fresh_database: str, topic: str) -> None:
    """What a legal batch becomes is in the budget until it is written."""
    with running(fresh_database) as gateway, RawClient(gateway.port) as client:
        client.create(topic)
        seen = 0
        batch = bomb(Codec.ZSTD, 15 * MEGA)
        thread = threading.Thread(target=produce, args=(client, topic, batch))
        thread.start()
        while thread.is_alive():
            seen = max(seen, gateway.gateway.services.budget.used)
        thread.join()
        assert seen > 15 * MEGA
        wait_for(lambda: gateway.gateway.services.budget.used == 0, "memory was not given back")


def test_readers_that_do_not_read_are_bounded_together(fresh_database: str, topic: str) -> None:
    """Sixty ask for more than there is memory, and take nothing."""
    limit = 32 * MEGA
    with running(fresh_database, max_inflight_bytes=limit) as gateway:
        with RawClient(gateway.port) as writer:
            writer.create(topic)
            for _ in range(64):
                assert produce(writer, topic, encode_batch([Record(0, NOW, value=os.urandom(900_000))])) == 0
        gateway.gateway.services.store.tails.doubt()
        gc.collect()
        before = psutil.Process().memory_info().rss
        request = b"".join(encode_request(FETCH, 11, 1, "deaf", fetch_request(topic, max_bytes=50 * MEGA)))
        with ExitStack() as stack:
            for _ in range(60):
                client = stack.enter_context(RawClient(gateway.port, receive_buffer=4096))
                client.socket.sendall(request)
            budget = gateway.gateway.services.budget
            most_used, most_rss = 0, 0
            deadline = time.monotonic() + 8
            while time.monotonic() < deadline:
                most_used = max(most_used, budget.used)
                most_rss = max(most_rss, psutil.Process().memory_info().rss)
                threading.Event().wait(0.02)
            with RawClient(gateway.port) as other:
                assert other.fetch(topic).responses[0].partitions[0].error_code == 0
        assert most_used < 2 * limit + 60 * MEGA
        assert most_rss - before < 3 * limit + 60 * MEGA
        wait_for(lambda: budget.used == 0, "memory was not given back")


def test_a_slow_reader_gets_its_answer_whole(fresh_database: str, topic: str) -> None:
    with running(fresh_database, max_inflight_bytes=8 * MEGA) as gateway, RawClient(gateway.port) as writer:
        writer.create(topic)
        for _ in range(8):
            assert produce(writer, topic, encode_batch([Record(0, NOW, value=os.urandom(900_000))])) == 0
        with RawClient(gateway.port, receive_buffer=4096) as slow:
            slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            answer = slow.fetch(topic, max_bytes=50 * MEGA)
            assert answer.responses[0].partitions[0].error_code == 0
        wait_for(lambda: gateway.gateway.services.budget.used == 0, "memory was not given back")
