"""The codecs of record batches, with a bound on what comes out.

Java frames snappy in its own way (xerial: a magic, then blocks with their lengths); librdkafka sends one plain block.
Both are read, the plain block is written. LZ4 is the frame format with independent blocks: Java reads no others.

Specification: Apache Kafka documentation, Implementation, "Message Format", Record Batch; KIP-110 (zstd).
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import zstandard

from headgate.model import Kind, ProtocolError
from headgate.wire.kafka.primitives import read_uvarint

__all__ = ["Codec", "TooMuchError", "compress", "decompress"]

_REMEDY = "The batch is damaged, or larger than the server lets it be."
_CHUNK_BYTES = 128 * 1024
# What every reader should support (RFC 8878, 3.1.1.1.2); a hostile frame may ask for 2 GB.
_MAX_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16  # the magic and two versions
_BLOCK_LENGTH = struct.Struct(">i")
# LZ4 Frame Format, Frame Descriptor: magic, flags (version 1, independent blocks), blocks of up to 4 MiB, and the
# checksum of these two bytes.
_LZ4_HEADER = bytes.fromhex("04224d18 60 70 73")
_LZ4_BLOCK_BYTES = 4 * 1024 * 1024
_LZ4_PLAIN_BLOCK = 0x80000000  # LZ4 Frame Format, Data Blocks: the highest bit of the size
_LZ4_LENGTH = struct.Struct("<I")


class TooMuchError(ProtocolError, kind=Kind.PROTOCOL):
    """What comes out is more than may."""


class Codec(enum.IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes) -> bytes:
    """The records of a batch as a producer would send them."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return zlib.compress(data, wbits=31)  # RFC 1952, and not the zlib format
        case Codec.SNAPPY:
            return bytes(pa.Codec("snappy").compress(data, asbytes=True))
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor().compress(data)


def decompress(codec: Codec, data: bytes, *, max_bytes: int) -> bytes:
    """The records of a batch; more than `max_bytes` of them raise `TooMuchError`, a damaged stream `ProtocolError`."""
    if codec is Codec.NONE:
        return _bounded(data, max_bytes)
    try:
        return _READ[codec](data, max_bytes)
    except (pa.ArrowException, OSError, IndexError, struct.error, zstandard.ZstdError):
        raise ProtocolError(f"not {codec.name.lower()} data that can be read", remedy=_REMEDY) from None


def _bounded(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _too_large(max_bytes: int) -> TooMuchError:
    return TooMuchError(f"records of more than {max_bytes} bytes", remedy=_REMEDY)


def _stream(codec: str) -> Callable[[bytes, int], bytes]:
    """Reads piece by piece, because no frame can be trusted to say how much is in it.

    Into a buffer of ours: pyarrow's `read` loses the one that it makes if the data turns out to be damaged.
    """

    def read(data: bytes, max_bytes: int) -> bytes:
        out, chunk = bytearray(), memoryview(bytearray(_CHUNK_BYTES))
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while size := stream.readinto(chunk):
                out += chunk[:size]
                if len(out) > max_bytes:
                    raise _too_large(max_bytes)
        return bytes(out)

    return read


_read_zstd_stream = _stream("zstd")


def _read_zstd(data: bytes, max_bytes: int) -> bytes:
    if zstandard.get_frame_parameters(data).window_size > max(_MAX_ZSTD_WINDOW_BYTES, max_bytes):
        raise _too_large(max_bytes)
    return _read_zstd_stream(data, max_bytes)


def _read_snappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _read_snappy_block(data, max_bytes)
    out = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        (size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= size <= len(data) - position:
            raise IndexError
        out += _read_snappy_block(data[position : position + size], max_bytes - len(out))
        position += size
    return bytes(out)


def _read_snappy_block(data: bytes, max_bytes: int) -> bytes:
    size, _ = read_uvarint(data, 0)  # a block begins with the size of its content (snappy format description, 1)
    if size > max_bytes:
        raise _too_large(max_bytes)
    return bytes(pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True))


def _compress_lz4(data: bytes) -> bytes:
    parts = [_LZ4_HEADER]
    codec = pa.Codec("lz4_raw")
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(codec.compress(plain, asbytes=True))
        if len(packed) < len(plain):
            parts += _LZ4_LENGTH.pack(len(packed)), packed
        else:
            parts += _LZ4_LENGTH.pack(len(plain) | _LZ4_PLAIN_BLOCK), plain
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)


_READ: dict[Codec, Callable[[bytes, int], bytes]] = {
    Codec.GZIP: _stream("gzip"),
    Codec.SNAPPY: _read_snappy,
    Codec.LZ4: _stream("lz4"),
    Codec.ZSTD: _read_zstd,
}
