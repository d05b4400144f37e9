"""A broker that lies, stalls or talks nonsense: the client raises an error of ours, soon, for little memory."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.model import AuthError, HeadgateError
from headgate.shadow.client import Client
from headgate.shadow.cluster import Cluster
from headgate.wire.kafka.login import login_steps
from headgate.wire.kafka.messages.cluster import METADATA, Broker, MetadataResponse, PartitionMetadata, TopicMetadata
from headgate.wire.kafka.messages.fetch import FETCH, FetchedPartition, FetchedTopic, FetchResponse
from headgate.wire.kafka.messages.session import API_VERSIONS, ApiVersion, ApiVersionsResponse

KEYS = ((0, 3, 12), (1, 4, 12), (2, 1, 7), (3, 1, 9), (18, 0, 3), (22, 0, 4))


class Liar:
    """Answers ApiVersions as a broker does, then as it is told; one connection."""

    def __init__(self, *answers: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._answers = [self.versions(), *answers]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @staticmethod
    def versions() -> bytes:
        keys = tuple(ApiVersion(*each) for each in KEYS)
        return b"".join(bytes(part) for part in API_VERSIONS.encode_response(ApiVersionsResponse(0, keys), 3))

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                for answer in self._answers:
                    size = struct.unpack(">i", self._exactly(connection, 4))[0]
                    request = self._exactly(connection, size)
                    connection.sendall(self._framed(request[4:8] + answer))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    @staticmethod
    def _framed(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    @staticmethod
    def _exactly(connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                raise OSError
            data += more
        return data

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@contextlib.contextmanager
def talking_to(*answers: bytes) -> Iterator[Client]:
    liar = Liar(*answers)
    client = Client(Cluster(servers=f"127.0.0.1:{liar.port}", timeout_s=2.0))
    try:
        yield client
    finally:
        client.close()
        liar.close()


def metadata(port: int = 1) -> bytes:
    topic = TopicMetadata(0, "t", partitions=(PartitionMetadata(0, 0, 1),))
    answer = MetadataResponse(brokers=(Broker(1, "127.0.0.1", port),), cluster_id="c", topics=(topic,))
    return b"\0" + b"".join(bytes(part) for part in METADATA.encode_response(answer, 9))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=100))
def test_nonsense_in_place_of_metadata(answer: bytes) -> None:
    with talking_to(b"\0" + answer) as client, contextlib.suppress(HeadgateError):
        client.topic("t")


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_metadata_that_is_cut_off_or_has_huge_lengths(data: st.DataObject) -> None:
    whole = metadata()
    at = data.draw(st.integers(1, len(whole) - 1))
    broken = whole[:at] + data.draw(st.sampled_from([b"", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff"]))
    with talking_to(broken) as client, contextlib.suppress(HeadgateError):
        client.topic("t")


@pytest.mark.parametrize("frame", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n"])
def test_a_frame_of_an_impossible_size(frame: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(frame)
            connection.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with pytest.raises(HeadgateError):
        Client(Cluster(servers=f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=2.0)).cluster_id()
    listener.close()
    thread.join(10)


def test_a_broker_that_says_nothing_is_given_up() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(HeadgateError, match="no answer in time"):
        Client(Cluster(servers=f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.2)).cluster_id()
    listener.close()


def test_batches_whose_checksum_is_wrong_are_not_taken() -> None:
    from headgate.shadow.client import batches_of
    from headgate.wire.kafka import Record, encode_batch

    batch = bytearray(encode_batch([Record(0, 0, b"k", b"v")]))
    batch[-1] ^= 1
    with pytest.raises(HeadgateError, match="checksum"):
        batches_of(FetchedPartition(records=bytes(batch)))
    assert FETCH.response is FetchResponse
    assert FetchedTopic().partitions == ()


@given(st.lists(st.binary(max_size=80), min_size=2, max_size=2), st.sampled_from(["SCRAM-SHA-256", "SCRAM-SHA-512"]))
def test_a_server_that_does_not_know_the_password_is_not_trusted(answers: list[bytes], mechanism: str) -> None:
    steps = login_steps(mechanism, "user", "password", "nonce")
    assert next(steps) == b"n,,n=user,r=nonce"
    with pytest.raises(AuthError):
        list(map(steps.send, answers))


@pytest.mark.parametrize("iterations", ["1", "4095", "999999999", "x", ""])
def test_a_server_may_not_choose_how_much_a_guess_costs(iterations: str) -> None:
    steps = login_steps("SCRAM-SHA-256", "user", "password", "nonce")
    next(steps)
    with pytest.raises(AuthError, match="iterations"):
        steps.send(f"r=nonceX,s=c2FsdA==,i={iterations}".encode())
