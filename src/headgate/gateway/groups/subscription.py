"""What a consumer of a classic group says to its leader, and the leader to it, as far as others have to know it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["assigned_partitions", "subscribed_topics"]

_START = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_NUMBER = struct.Struct(">i")


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


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]]:
    """Return the partitions that a leader assigns to a member, by topic; none if the bytes are no assignment."""
    found: list[tuple[str, int]] = []
    try:
        _, count = _START.unpack_from(assignment)
        position = _START.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(assignment, position)
            end = position + _LENGTH.size + length
            (partitions,) = _NUMBER.unpack_from(assignment, end) if length >= 0 else (-1,)
            topic = assignment[position + _LENGTH.size : end].decode()
            position = end + _NUMBER.size
            found += [(topic, index) for (index,) in _numbers(assignment, position, partitions)]
            position += _NUMBER.size * partitions
    except (struct.error, UnicodeDecodeError):
        return []
    return found


def _numbers(data: bytes, start: int, count: int) -> Iterator[tuple[int]]:
    """Read a number of integers; raises `struct.error` if the bytes end before."""
    stop = start + _NUMBER.size * count
    if count < 0 or stop > len(data):
        raise struct.error("too short")
    return _NUMBER.iter_unpack(data[start:stop])
