"""zstd frames to payloads: all that a consumer needs.

Specification: RFC 8878 (Zstandard).
"""

from __future__ import annotations

from collections import OrderedDict

import zstandard

from headgate.model import ProtocolError
from headgate.wire.compress.dictionary import Dictionary
from headgate.wire.compress.headers import ZSTD

__all__ = ["Decompressor", "bad_dictionary", "decompress", "zstd_dictionary"]

_MAX_DICTIONARIES = 64
_REMEDY = "read the payload with the dictionary that its header names; if that is so, the message is damaged"


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


def _zstd_decompressor(dictionary: bytes | None) -> zstandard.ZstdDecompressor:
    try:
        return zstandard.ZstdDecompressor(dict_data=zstd_dictionary(dictionary))
    except zstandard.ZstdError as error:
        raise bad_dictionary(str(error)) from None


def zstd_dictionary(data: bytes | None) -> zstandard.ZstdCompressionDict | None:
    if data is None:
        return None
    # A full dictionary has an id, which frames name: bytes that merely serve as a prefix would decompress to rubbish.
    prepared = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
    if not prepared.dict_id():
        raise bad_dictionary("it has no id")
    return prepared


def bad_dictionary(reason: str) -> ProtocolError:
    return ProtocolError(f"not a zstd dictionary: {reason}", remedy="read it again from the bucket of dictionaries")
