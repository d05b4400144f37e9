"""A client that sends what it is told to, for what real clients never do."""

from __future__ import annotations

import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from headgate.wire.kafka import Api, Body, Record, decode_response, encode_batch, encode_request
from headgate.wire.kafka.messages.cluster import METADATA, AskedTopic, MetadataRequest
from headgate.wire.kafka.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from headgate.wire.kafka.messages.produce import PRODUCE, ProducePartition, ProduceRequest, ProduceTopic

__all__ = ["RawClient", "fetch_request", "produce_request"]

TIMEOUT_S = 20.0


class RawClient:
    """One connection. `ask` sends a request and reads its answer; `send` and `receive` are its halves."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(("127.0.0.1", port))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, api: Api[Any, Any], version: int, request: Body) -> int:
        """Send a request; its correlation id comes back with the answer."""
        self._correlation_id += 1
        self.socket.sendall(b"".join(encode_request(api, version, self._correlation_id, "raw", request)))
        return self._correlation_id

    def receive_frame(self) -> bytes | None:
        """The next frame, or None if the gateway has closed the connection."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def receive(self, api: Api[Any, Any], version: int) -> tuple[int, Any]:
        frame = self.receive_frame()
        assert frame is not None, "the connection was closed"
        return decode_response(api, version, frame)

    def ask(self, api: Api[Any, Any], version: int, request: Body) -> Any:
        sent = self.send(api, version, request)
        correlation_id, answer = self.receive(api, version)
        assert correlation_id == sent
        return answer

    def create(self, topic: str) -> None:
        """Make a topic by asking for it."""
        answer = self.ask(METADATA, 9, MetadataRequest(topics=(AskedTopic(name=topic),)))
        assert answer.topics[0].error_code == 0

    def produce(self, topic: str, *values: bytes, acks: int = -1) -> Any:
        return self.ask(PRODUCE, 9, produce_request(topic, *values, acks=acks))

    def fetch(self, topic: str, offset: int = 0, **settings: Any) -> Any:
        return self.ask(FETCH, 11, fetch_request(topic, offset, **settings))

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)


def produce_request(topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> ProduceRequest:
    now_ms = time.time_ns() // 1_000_000  # older messages are retired by the next round, on a busy machine too early
    batch = encode_batch([Record(offset, now_ms, value=value) for offset, value in enumerate(values)])
    data = ProduceTopic(name=topic, partition_data=(ProducePartition(index=partition, records=batch),))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(data,))


def fetch_request(
    topic: str, offset: int = 0, *, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
    )
