"""Payloads to zstd frames and back: columns of small messages, and single ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from headgate.model import ProtocolError
from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.headers import ZSTD, header_line

__all__ = ["Compressor", "Decompressor", "decompress"]

_MAX_DICTIONARIES = 64
_REMEDY = "read the payload with the dictionary that its header names; if that is so, the message is damaged"


class Compressor:
    """Compresses messages, each to one frame. Not for two threads at once.

    A message is left as it is unless that saves more bytes than the headers of a compressed one cost.
    """

    def __init__(self, level: int = 3, dictionary: Dictionary | None = None) -> None:
        self.dictionary = dictionary
        self._header_bytes = len(header_line(dictionary))
        self._zstd = _zstd_compressor(level, dictionary.data if dictionary else None)

    def compress(self, payload: bytes) -> bytes:
        """The frame, or the payload itself if the frame would not be worth it."""
        frame = self._zstd.compress(payload)
        return frame if len(frame) + self._header_bytes < len(payload) else payload

    def compress_column(self, payloads: pa.Array) -> pa.Array:
        """The same for a binary column without nulls."""
        lengths = pc.binary_length(payloads)
        # Shorter ones cannot win, and zstd would write them for nothing.
        candidates = pc.greater(lengths, self._header_bytes)
        count = pc.sum(candidates).as_py() or 0
        if count == len(payloads):
            return self._smaller(payloads, lengths) if count else payloads
        tried = payloads.filter(candidates)
        made = self._smaller(tried, lengths.filter(candidates)) if count else tried
        return pc.replace_with_mask(payloads, candidates, made)

    def cost(self, payloads: Sequence[bytes]) -> int:
        """Bytes that messages would take on the wire, headers of compression included."""
        sizes = ((len(payload), len(self.compress(payload))) for payload in payloads)
        return sum(after + self._header_bytes if after < before else after for before, after in sizes)

    def _smaller(self, payloads: pa.Array, lengths: pa.Array) -> pa.Array:
        frames = self._frames(payloads)
        is_worth_it = pc.less(pc.add(pc.binary_length(frames), self._header_bytes), lengths)
        return frames if pc.all(is_worth_it).as_py() else pc.if_else(is_worth_it, frames, payloads)

    def _frames(self, payloads: pa.Array) -> pa.Array:
        """Arrow's own buffers go in and one comes out: no object per row on the way in, a short-lived one out."""
        segments = zstandard.BufferWithSegments(*_segments(payloads))
        # A sequence of buffers, which its stubs do not say.
        frames: Any = self._zstd.multi_compress_to_buffer(segments, threads=1)
        offsets = np.zeros(len(payloads) + 1, np.int32)
        np.cumsum(np.fromiter(map(len, frames), np.int32, len(frames)), out=offsets[1:])
        data = b"".join(frames)
        return pa.Array.from_buffers(pa.binary(), len(payloads), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def decompress(payload: bytes, dictionary: bytes | None, *, max_bytes: int) -> bytes:
    """The content of one frame. Bytes that are none, or that hold more than `max_bytes`, raise `ProtocolError`."""
    return _decompress(_zstd_decompressor(dictionary), payload, max_bytes)


class Decompressor:
    """Decompresses messages by their headers; keeps the dictionaries it was taught, the 64 used last."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._plain = _zstd_decompressor(None)
        self._by_id: OrderedDict[str, zstandard.ZstdDecompressor] = OrderedDict()

    def knows(self, dictionary_id: str) -> bool:
        return dictionary_id in self._by_id

    def learn(self, dictionary_id: str, data: bytes) -> None:
        """Take a dictionary as it lies in the bucket; one that is not what its id says raises `ProtocolError`."""
        if Dictionary.of(data).id != dictionary_id:
            raise ProtocolError(
                f"the dictionary {dictionary_id[:40]!r} is not what its id says",
                remedy="delete it from the bucket of dictionaries; messages that need it must be sent again",
            )
        self._by_id[dictionary_id] = _zstd_decompressor(data)
        if len(self._by_id) > _MAX_DICTIONARIES:
            self._by_id.popitem(last=False)

    def decompress(self, payload: bytes, encoding: str, dictionary_id: str = "") -> bytes:
        """The payload of a message with these headers; empty texts stand for headers that are not there.

        A dictionary that was not learnt, or forgotten since, raises `ProtocolError`: ask `knows` before.
        """
        if not encoding:
            return payload
        if encoding != ZSTD:
            raise ProtocolError(f"unknown encoding {encoding[:40]!r}", remedy="use a newer version of this reader")
        return _decompress(self._reader(dictionary_id), payload, self._max_bytes)

    def _reader(self, dictionary_id: str) -> zstandard.ZstdDecompressor:
        if not dictionary_id:
            return self._plain
        if dictionary_id not in self._by_id:
            raise ProtocolError(f"the dictionary {dictionary_id[:40]!r} is not known", remedy=_REMEDY)
        self._by_id.move_to_end(dictionary_id)
        return self._by_id[dictionary_id]


def _decompress(zstd: zstandard.ZstdDecompressor, payload: bytes, max_bytes: int) -> bytes:
    try:
        # -1 stands for a frame without its size: whoever makes memory for it would have to guess.
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= max_bytes:
            raise ProtocolError(f"a frame of {size} bytes, but at most {max_bytes} may be", remedy=_REMEDY)
        content = zstd.decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ProtocolError(f"not a zstd frame that can be read: {error}", remedy=_REMEDY) from None
    if len(content) != size:
        raise ProtocolError(f"a frame of {size} bytes has {len(content)}", remedy=_REMEDY)
    return content


def _zstd_compressor(level: int, dictionary: bytes | None) -> zstandard.ZstdCompressor:
    prepared = _zstd_dictionary(dictionary)
    try:
        if prepared:
            prepared.precompute_compress(level)  # its tables, which are otherwise made once per message
    except zstandard.ZstdError as error:
        raise _bad_dictionary(str(error)) from None
    return zstandard.ZstdCompressor(
        level, dict_data=prepared, write_content_size=True, write_checksum=False, write_dict_id=True
    )


def _zstd_decompressor(dictionary: bytes | None) -> zstandard.ZstdDecompressor:
    try:
        return zstandard.ZstdDecompressor(dict_data=_zstd_dictionary(dictionary))
    except zstandard.ZstdError as error:
        raise _bad_dictionary(str(error)) from None


def _zstd_dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    if data is None:
        return None
    # A full dictionary has an id, which frames name: bytes that merely serve as a prefix would decompress to rubbish.
    prepared = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
    if not prepared.dict_id():
        raise _bad_dictionary("it has no id")
    return prepared


def _bad_dictionary(reason: str) -> ProtocolError:
    return ProtocolError(f"not a zstd dictionary: {reason}", remedy="read it again from the bucket of dictionaries")


def _segments(payloads: pa.Array) -> tuple[memoryview, memoryview]:
    """A binary column as zstd wants it: the bytes, and where each row begins and how long it is."""
    _, offsets, data = payloads.buffers()
    ends = np.frombuffer(offsets, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.uint64)
    return memoryview(data), np.column_stack((ends[:-1], np.diff(ends))).data
