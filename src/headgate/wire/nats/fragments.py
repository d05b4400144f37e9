"""Payloads larger than the server takes travel as several messages; this joins them again.

Each carries the header `Headgate-Chunk: 2/5`, the second of five.
"""

from __future__ import annotations

from headgate.model import ProtocolError

__all__ = ["FRAGMENT_HEADER", "FragmentJoiner"]

FRAGMENT_HEADER = "Headgate-Chunk"


class FragmentJoiner:
    """Puts parts together again; feed it the messages of a stream in order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, payload: bytes, chunk: str | None) -> bytes | None:
        """A whole payload, or None while parts are missing. `chunk` is the message's chunk header, if it has one."""
        if chunk is None:
            return payload
        number, slash, count = chunk.partition("/")
        if not (slash and number.isdigit() and count.isdigit()) or int(number) != len(self._parts) + 1:
            raise ProtocolError(
                f"chunk {chunk[:40]!r} does not follow part {len(self._parts)}",
                remedy="read the stream from the beginning of the row, in order",
            )
        self._parts.append(payload)
        if int(number) < int(count):
            return None
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
