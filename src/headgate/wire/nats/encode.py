"""What a client says: CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG.

These are the readable, one-message encoders. The bulk encoder of `destinations.nats.frames` must give the same bytes;
its tests use this module as the oracle.

Specification: NATS documentation, "Client Protocol"; ADR-4 (headers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from headgate.wire.nats.subject import check_subject

__all__ = ["encode_connect", "encode_hpub", "encode_pub", "encode_sub", "encode_unsub", "ping_line", "pong_line"]

_LINE_END = b"\r\n"

ping_line = b"PING\r\n"
pong_line = b"PONG\r\n"


def encode_connect(fields: Mapping[str, object]) -> bytes:
    """`CONNECT {json}`; json.dumps escapes line breaks, so no field can end the line early."""
    return b"CONNECT " + json.dumps(dict(fields), separators=(",", ":")).encode() + _LINE_END


def encode_pub(subject: str, payload: bytes, reply: str = "") -> bytes:
    """`PUB subject [reply] size`."""
    return b"PUB %s%d\r\n%s\r\n" % (_addresses(subject, reply), len(payload), payload)


def encode_hpub(subject: str, headers: bytes, payload: bytes, reply: str = "") -> bytes:
    """`HPUB subject [reply] header-size total-size`; `headers` is a whole block from `encode_headers`."""
    total = len(headers) + len(payload)
    return b"HPUB %s%d %d\r\n%s%s\r\n" % (_addresses(subject, reply), len(headers), total, headers, payload)


def encode_sub(subject: str, sid: int, queue: str = "") -> bytes:
    """`SUB subject [queue] sid`."""
    return b"SUB %s%d\r\n" % (_addresses(subject, queue), sid)


def encode_unsub(sid: int, max_msgs: int = 0) -> bytes:
    """`UNSUB sid [max_msgs]`: at once, or after so many more messages."""
    return b"UNSUB %d %d\r\n" % (sid, max_msgs) if max_msgs else b"UNSUB %d\r\n" % sid


def _addresses(subject: str, second: str) -> bytes:
    words = [check_subject(subject), check_subject(second)] if second else [check_subject(subject)]
    return "".join(f"{word} " for word in words).encode()
