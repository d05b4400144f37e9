"""The frames of a connection: an int32 length, then that many bytes.

    splitter.feed(data)
    for frame in splitter.frames():
        ...

Any split of the byte stream gives the same frames. A frame above the limit raises as soon as its length is read, so a
peer can make us keep no more than the limit. After an error the splitter stays broken: where the next frame begins is
unknown, and the connection has to be closed.

Specification: Apache Kafka protocol guide, "Common Request and Response Structure".
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from headgate.model import ProtocolError
from headgate.wire.kafka.encode import Buffers

__all__ = ["LENGTH_BYTES", "MAX_FRAME_BYTES", "FrameSplitter", "framed"]

MAX_FRAME_BYTES = 100 * 1024 * 1024  # what Kafka's brokers accept by default (`socket.request.max.bytes`)
_LENGTH = Struct(">i")
LENGTH_BYTES = _LENGTH.size


class FrameSplitter:
    """Bytes in through `feed`, frames without their length out through `frames`."""

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()
        self._start = 0  # of the next frame; what lies before it is cut off when all frames are out
        self._broken: ProtocolError | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing of a further frame has arrived yet."""
        return self._start == len(self._buffer)

    @property
    def missing(self) -> tuple[int, int]:
        """The size of the frame that has begun, and how much of it is still to come; zeros while that is not known."""
        size = None if self._broken else self._size()
        return (0, 0) if size is None else (size, self._start + 4 + size - len(self._buffer))

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes; take the frames out before feeding more."""
        self._buffer += data

    def frames(self) -> Iterator[bytes]:
        """Every complete frame; raises `ProtocolError` at the first length that cannot be, after the frames before."""
        if self._broken:
            raise self._broken
        try:
            while (size := self._size()) is not None and len(self._buffer) >= self._start + 4 + size:
                begin, self._start = self._start + 4, self._start + 4 + size
                yield bytes(memoryview(self._buffer)[begin : self._start])
        except ProtocolError as error:
            self._broken = error
            self._start = len(self._buffer)
            raise
        finally:
            # Once per call: to cut the buffer after every small frame would move all the others.
            del self._buffer[: self._start]
            self._start = 0

    def _size(self) -> int | None:
        if len(self._buffer) < self._start + 4:
            return None
        size: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        if not 0 <= size <= self.max_bytes:
            raise ProtocolError(
                f"a frame of {size} bytes, but at most {self.max_bytes} may be",
                remedy="Check that the peer speaks Kafka's protocol, without TLS if the port has none.",
            )
        return size


def framed(buffers: Buffers) -> Buffers:
    """The buffers with their length in front."""
    return [_LENGTH.pack(sum(map(len, buffers))), *buffers]
