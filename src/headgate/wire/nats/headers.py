"""The header block of HPUB and HMSG (ADR-4): `NATS/1.0[ status[ description]]`, then `name: value` lines.

Header bytes that are not UTF-8 survive a round trip through `surrogateescape`, because messages that other programs
stored must be readable whatever they put into their headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headgate.model import DataError, ProtocolError

__all__ = ["Headers", "encode_headers", "parse_headers"]

_VERSION = b"NATS/1.0"
_NAME = re.compile(r"[!-9;-~]+")  # ADR-4: printable ASCII without the colon
# No two quantifiers that match the same bytes side by side: a hostile line would cost quadratic time.
_STATUS = re.compile(rb"NATS/1\.0(?: +([0-9]{3})(?: ([^\r\n]*))?)?")


@dataclass(frozen=True, slots=True)
class Headers:
    """Header fields in their order; `status` is 0 unless the server itself speaks (503 no responders, 404 ...)."""

    fields: tuple[tuple[str, str], ...] = ()
    status: int = 0
    description: str = ""

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field; names keep their case (ADR-4) and are told apart by it."""
        return next((value for key, value in self.fields if key == name), default)

    def __bool__(self) -> bool:
        return bool(self.fields or self.status)


def encode_headers(fields: Iterable[tuple[str, str]]) -> bytes:
    """The whole block, ending in the empty line. A name or value that cannot be sent raises `DataError`."""
    return b"".join([_VERSION, b"\r\n", *map(_field_line, fields), b"\r\n"])


def parse_headers(block: bytes) -> Headers:
    """Parse a whole block; anything malformed raises `ProtocolError`."""
    if not block.endswith(b"\r\n\r\n"):
        raise ProtocolError("NATS headers do not end in an empty line")
    first, *lines = block[:-4].split(b"\r\n")
    match = _STATUS.fullmatch(first.rstrip(b" "))
    if match is None:
        raise ProtocolError(f"not a NATS header block: {first[:40]!r}")
    status, description = match.groups()
    return Headers(tuple(map(_parse_field, lines)), int(status or 0), _text(description or b"").strip())


def _field_line(field: tuple[str, str]) -> bytes:
    name, value = field
    if not _NAME.fullmatch(name):
        raise DataError(f"not a header name: {name[:80]!r}")
    raw = value.encode("utf-8", "surrogateescape")
    if b"\r" in raw or b"\n" in raw or raw.strip(b" \t") != raw:
        raise DataError(f"header {name} has a line break or outer white space in its value")
    return b"%s: %s\r\n" % (name.encode(), raw)


def _parse_field(line: bytes) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    if not colon or not _NAME.fullmatch(_text(name)) or b"\r" in value or b"\n" in value:
        raise ProtocolError(f"not a NATS header line: {line[:40]!r}")
    return name.decode(), _text(value.strip(b" \t"))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
