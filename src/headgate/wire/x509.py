"""The subject of a certificate (RFC 5280), written as RFC 2253 has it, which is how Kafka names who shows one.

Only as much of DER (X.690) is read as lies before the subject; whether the certificate is to be trusted is not asked
here. Bytes that are no certificate raise ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from headgate.model import ProtocolError

__all__ = ["Attribute", "Subject", "common_name", "distinguished_name", "read_subject"]

Attribute: TypeAlias = tuple[str, int, bytes]  # an OID, and the tag and the bytes of its value
Subject: TypeAlias = tuple[tuple[Attribute, ...], ...]  # the most general name first, as in the certificate

_SEQUENCE, _SET, _OID, _INTEGER, _VERSION = 0x30, 0x31, 0x06, 0x02, 0xA0
_TEXT = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
_COMMON_NAME = "2.5.4.3"
_KEYWORDS = {  # RFC 2253, section 2.3; others are written as numbers
    _COMMON_NAME: "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}


def read_subject(certificate: bytes) -> Subject:
    """Return the subject of a certificate in DER."""
    fields = _items(_first(_first(certificate, _SEQUENCE), _SEQUENCE))
    tag, _ = _next(fields)
    if tag == _VERSION:
        tag, _ = _next(fields)
    if tag != _INTEGER:  # the serial number
        raise _broken()
    for _ in range(3):  # how it is signed, by whom, for how long
        _next(fields)
    tag, names = _next(fields)
    if tag != _SEQUENCE:
        raise _broken()
    return tuple(tuple(_attributes(part)) for part in _parts(names, _SET))


def distinguished_name(subject: Subject) -> str:
    """Return the name as `CN=alice,OU=clients,O=Example`: the most special part first."""
    return ",".join("+".join(map(_written, part)) for part in reversed(subject))


def common_name(subject: Subject) -> str | None:
    """Return the one common name; None if there is none, or if there are several."""
    found = [each for part in subject for each in part if each[0] == _COMMON_NAME]
    return _text(found[0]) if len(found) == 1 else None


def _written(attribute: Attribute) -> str:
    oid, tag, value = attribute
    text = _text(attribute)
    if oid in _KEYWORDS and text is not None:
        return f"{_KEYWORDS[oid]}={_escaped(text)}"
    return f"{oid}=#{(bytes((tag,)) + _length(len(value)) + value).hex()}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in text)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if len(text) > 1 and text.endswith(" ") else escaped


def _text(attribute: Attribute) -> str | None:
    _, tag, value = attribute
    try:
        return value.decode(_TEXT[tag])
    except (KeyError, UnicodeDecodeError):
        return None


def _attributes(part: bytes) -> Iterator[Attribute]:
    for pair in _parts(part, _SEQUENCE):
        items = _items(pair)
        tag, oid = _next(items)
        if tag != _OID:
            raise _broken()
        yield (_dotted(oid), *_next(items))


def _dotted(oid: bytes) -> str:
    numbers, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise _broken()
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _parts(data: bytes, wanted: int) -> Iterator[bytes]:
    for tag, value in _items(data):
        if tag != wanted:
            raise _broken()
        yield value


def _first(data: bytes, wanted: int) -> bytes:
    tag, value = _next(_items(data))
    if tag != wanted:
        raise _broken()
    return value


def _next(items: Iterator[tuple[int, bytes]]) -> tuple[int, bytes]:
    item = next(items, None)
    if item is None:
        raise _broken()
    return item


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        tag = data[place]
        size, start = _size(data, place + 1)
        if start + size > len(data):
            raise _broken()
        yield tag, data[start : start + size]
        place = start + size


def _size(data: bytes, place: int) -> tuple[int, int]:
    """The length that is written there, and where what has it begins."""
    if place >= len(data):
        raise _broken()
    first = data[place]
    if first < 0x80:
        return first, place + 1
    count = first & 0x7F
    if not 1 <= count <= 4 or place + 1 + count > len(data):
        raise _broken()
    return int.from_bytes(data[place + 1 : place + 1 + count]), place + 1 + count


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((0x80 | len(digits),)) + digits


def _broken() -> ProtocolError:
    return ProtocolError("this is not a certificate", remedy="Send an X.509 certificate in DER.")
