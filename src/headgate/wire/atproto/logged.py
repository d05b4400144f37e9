"""What a relay keeps of an event in its log: when it was numbered, in microseconds since 1970, whose event it was under
which number, and its frame.

    time u64 | frame                                             # of the relay itself, and of older versions
    time u64 with the highest bit | number u64 | length of the name u8 | name of the host | frame
"""

from __future__ import annotations

import struct
from typing import Final

from headgate.wire.atproto.events import Kind

__all__ = ["LOG_KINDS", "frame_of", "logged", "origin_of", "time_of"]

_TIME = struct.Struct("<Q")
_ORIGIN = struct.Struct("<QQB")
_HAS_ORIGIN = 1 << 63
_MOST_NAME = 255
# The numbers that logs of relays have for their kinds of events.
LOG_KINDS: Final = {Kind.COMMIT: 1, Kind.IDENTITY: 4, Kind.ACCOUNT: 5, Kind.SYNC: 6}


def logged(time_us: int, frame: bytes, host: str = "", seq: int = 0) -> bytes:
    name = host.encode()
    if not name or len(name) > _MOST_NAME:
        return _TIME.pack(time_us) + frame
    return b"".join((_ORIGIN.pack(time_us | _HAS_ORIGIN, seq, len(name)), name, frame))


def time_of(payload: bytes) -> int:
    return int.from_bytes(payload[: _TIME.size], "little") & ~_HAS_ORIGIN


def frame_of(payload: bytes) -> bytes:
    return payload[_frame_start(payload) :]


def origin_of(payload: bytes) -> tuple[str, int] | None:
    """The host that sent the event, and its number there."""
    start = _frame_start(payload)
    if start == _TIME.size:
        return None
    return payload[_ORIGIN.size : start].decode(errors="replace"), int.from_bytes(payload[8:16], "little")


def _frame_start(payload: bytes) -> int:
    if len(payload) < _ORIGIN.size or not payload[_TIME.size - 1] & 0x80:
        return _TIME.size
    return _ORIGIN.size + payload[_ORIGIN.size - 1]
