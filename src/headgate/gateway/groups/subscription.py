"""What a consumer of a classic group says to its leader, as far as a coordinator has to know it: the topics."""

from __future__ import annotations

import struct

__all__ = ["subscribed_topics"]

_START = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics of a subscription: version, then the names. Bytes that are none have none."""
    topics: list[str] = []
    try:
        _, count = _START.unpack_from(metadata)
        position = _START.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size + length
            if length < 0 or position > len(metadata):
                return []
            topics.append(metadata[position - length : position].decode())
    except (struct.error, UnicodeDecodeError):
        return []
    return topics
