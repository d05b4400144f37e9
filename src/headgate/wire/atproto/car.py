"""CAR v1, the container of blocks in events: split, with every block compared with its CID, and written.

Specification: CARv1 (IPLD), "Content Addressable aRchives".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from headgate.wire.atproto import cbor
from headgate.wire.atproto.cid import CBOR_PREFIX, CID_SIZE, RAW_PREFIX, is_cid
from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = ["Car", "read_car", "write_car"]

_MAX_HEADER_BYTES = 4096  # no limit of CARv1: ours


@dataclass(frozen=True, slots=True)
class Car:
    """The blocks by their CID, in the order they came in, and the roots that the header names."""

    roots: tuple[bytes, ...]
    blocks: dict[bytes, bytes]


def read_car(data: bytes) -> Car:
    """Split a CAR. Blocks may come in any order, twice, or without need; each must be what its CID says.

    What may be said of blocks: AT Protocol, "Repository", CAR File Serialization.
    """
    end = len(data)
    size, position = _varint(data, 0)
    if size > _MAX_HEADER_BYTES or position + size > end:
        raise _bad("the header is cut off or too long")
    roots = _roots(data[position : position + size])
    position += size
    blocks: dict[bytes, bytes] = {}
    while position < end:  # CARv1, Data: a length, which counts the CID too, then the CID, then the block
        size = data[position]
        if size < 0x80:
            position += 1
        else:
            size, position = _varint(data, position)
        start = position + CID_SIZE
        cid = data[position:start]
        position += size
        if size < CID_SIZE or position > end:
            raise _bad("a block is cut off")
        block = data[start:position]
        if cid[4:] != sha256(block).digest():
            raise _mismatch(cid)
        if not cid.startswith((CBOR_PREFIX, RAW_PREFIX)):
            raise _bad("a block has another kind of CID than repositories use")
        blocks[cid] = block
    return Car(roots, blocks)


def write_car(root: bytes, blocks: Iterable[tuple[bytes, bytes]]) -> bytes:
    header = cbor.encode({"roots": [root], "version": 1})
    parts = [_write_varint(len(header)), header]
    for cid, block in blocks:
        parts += (_write_varint(CID_SIZE + len(block)), cid, block)
    return b"".join(parts)


def _roots(raw: bytes) -> tuple[bytes, ...]:
    """CARv1, Header, Constraints: the version is 1, and the roots are CIDs."""
    header = cbor.decode_map(raw)
    roots = header.get("roots")
    if header.get("version") != 1 or not isinstance(roots, list) or not all(is_cid(root) for root in roots):
        raise _bad("the header is not of version 1, or names no roots")
    return tuple(roots)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """CARv1, Length: unsigned LEB128; in its shortest form, as unsigned-varint (multiformats) demands."""
    value = shift = 0
    for byte in data[position : position + 5]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise _bad("a length is longer than need be")
            return value, position
        shift += 7
    raise _bad("a length is cut off or too long")


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bad(what: str) -> AtprotoError:
    return AtprotoError(Reason.BAD_CAR, f"not a CAR: {what}")


def _mismatch(cid: bytes) -> AtprotoError:
    if not is_cid(cid):
        return _bad("a block has another kind of CID than repositories use")
    return AtprotoError(Reason.BLOCK_HASH, "a block is not what its CID says")
