"""CIDs of the one form that repositories use: CIDv1, SHA-256, of DAG-CBOR or of raw bytes.

Inside headgate a CID is its 36 bytes, as in blocks and events; the text (`bafy...`) is for people and JSON.

Specification: CIDv1 (multiformats), as the AT Protocol restricts it in "Data Model", Link and CID Formats.
"""

from __future__ import annotations

import binascii
from base64 import b32decode
from hashlib import sha256
from typing import Final

import libipld

from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = ["CBOR_PREFIX", "CID_SIZE", "RAW_PREFIX", "cid_of", "cid_text", "is_cid", "parse_cid"]

# Version 1, codec (DAG-CBOR or raw), SHA-256, 32 bytes of it: the only ones that are blessed.
CBOR_PREFIX: Final = b"\x01\x71\x12\x20"
RAW_PREFIX: Final = b"\x01\x55\x12\x20"
CID_SIZE: Final = 36
_TEXT_SIZE = 59  # `b` for base32 without padding (multibase; RFC 4648 section 6), then 58 letters


def cid_of(block: bytes) -> bytes:
    """The CID of a block of DAG-CBOR."""
    return CBOR_PREFIX + sha256(block).digest()


def is_cid(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == CID_SIZE and value[:4] in (CBOR_PREFIX, RAW_PREFIX)


def cid_text(cid: bytes) -> str:
    text: str = libipld.encode_cid(cid)
    return text


def parse_cid(text: str) -> bytes:
    """The bytes of a CID from its base32 text."""
    if len(text) != _TEXT_SIZE or not text.startswith("b") or not text.islower():
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no CID of a repository")
    try:
        cid = b32decode(text[1:].upper() + "=" * 6)
    except (binascii.Error, ValueError) as error:
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no CID of a repository") from error
    if not is_cid(cid) or cid_text(cid) != text:
        raise AtprotoError(Reason.BAD_SYNTAX, f"{text[:80]!r} is no CID of a repository")
    return cid
