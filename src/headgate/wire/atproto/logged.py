"""What a relay keeps of an event in its log: when it was numbered, in microseconds since 1970, and its frame."""

from __future__ import annotations

import struct
from typing import Final

from headgate.wire.atproto.events import Kind

__all__ = ["LOG_KINDS", "frame_of", "logged", "time_of"]

_TIME = struct.Struct("<Q")
# The numbers that logs of relays have for their kinds of events.
LOG_KINDS: Final = {Kind.COMMIT: 1, Kind.IDENTITY: 4, Kind.ACCOUNT: 5, Kind.SYNC: 6}


def logged(time_us: int, frame: bytes) -> bytes:
    return _TIME.pack(time_us) + frame


def time_of(payload: bytes) -> int:
    return int.from_bytes(payload[: _TIME.size], "little")


def frame_of(payload: bytes) -> bytes:
    return payload[_TIME.size :]
