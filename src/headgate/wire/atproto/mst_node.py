"""One node of a repository's tree: read with every check that it allows, and written.

A node holds keys of one height, and between them links to nodes one height lower. The height of a key is in its hash,
so a set of keys has exactly one tree. Keys are written as what they add to the key before.

Specification: AT Protocol, "Repository", MST Structure.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, TypeAlias

import libipld

from headgate.wire.atproto.cbor import head
from headgate.wire.atproto.cid import CBOR_PREFIX, CID_SIZE, cid_of
from headgate.wire.atproto.errors import AtprotoError, Reason

__all__ = ["EMPTY_BLOCK", "EMPTY_ROOT", "Child", "Node", "common_prefix", "key_height", "read_node", "write_node"]

EMPTY_BLOCK: Final = b"\xa2\x61e\x80\x61l\xf6"
EMPTY_ROOT: Final = cid_of(EMPTY_BLOCK)
MAX_NODE_BYTES: Final = 512_000  # 4,000 keys, where chance gives four; ours
_LINK: Final = b"\xd8\x2a\x58\x25\x00"
_HEIGHTS: Final = tuple((8 - byte.bit_length()) // 2 for byte in range(256))


class Node:
    """A node in memory. Child i is left of key i, the last one right of all keys.

    A child is a link while it has not been read. `cid`, `raw` and `links` are the node as it was read or last written;
    `cid` is None once something below has changed, `raw` once the node itself has. `low` and `high` are the keys that
    its keys must lie between.
    """

    __slots__ = ("children", "cid", "height", "high", "keys", "links", "low", "raw", "values")

    def __init__(self, height: int, keys: list[bytes], values: list[bytes], children: list[Child]) -> None:
        self.height = height
        self.keys = keys
        self.values = values
        self.children = children
        self.low: bytes | None = None
        self.high: bytes | None = None
        self.cid: bytes | None = None
        self.raw: bytes | None = None
        self.links: list[bytes | None] = []


Child: TypeAlias = Node | bytes | None


def key_height(key: bytes) -> int:
    """Half the zero bits that the hash of the key begins with: what the specification calls its depth."""
    digest = sha256(key).digest()
    return _HEIGHTS[digest[0]] if digest[0] else _tall(digest)


def _tall(digest: bytes) -> int:
    if digest[1]:
        return 4 + _HEIGHTS[digest[1]]
    return (256 - int.from_bytes(digest, "big").bit_length()) // 2


def common_prefix(left: bytes, right: bytes) -> int:
    """How many bytes both begin with: the first set bit of their XOR tells."""
    size = min(len(left), len(right))
    difference = int.from_bytes(left[:size], "big") ^ int.from_bytes(right[:size], "big")
    return size - (difference.bit_length() + 7) // 8


def read_node(cid: bytes, raw: bytes, height: int | None, low: bytes | None, high: bytes | None) -> Node:
    """A node that must have this height, and its keys between these two. Without a height it is the root."""
    if len(raw) > MAX_NODE_BYTES:
        raise _bad("it is too long")
    try:
        fields = libipld.decode_dag_cbor(raw)
        canonical = libipld.encode_dag_cbor(fields) == raw
        keys, values, links = _entries(fields["e"], fields["l"])
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise _bad("its fields are missing or of the wrong type") from error
    if not canonical or len(fields) != 2:
        raise _bad("it has more fields than it should, or is not in the one form that DAG-CBOR allows")
    height = _common_height(keys, height)
    _check_place(keys, links, height, low, high)
    node = Node(height, keys, values, list(links))
    node.low, node.high, node.cid, node.raw, node.links = low, high, cid, raw, links
    return node


def _entries(entries: Any, left: Any) -> tuple[list[bytes], list[bytes], list[bytes | None]]:
    """The keys, values and links of a node. What is of the wrong type fails in here, with any of Python's errors.

    This loop is where checking a commit spends its time.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    links: list[bytes | None] = [left]
    key, size = b"", 0
    for entry in entries:
        shared, value, link = entry["p"], entry["v"], entry["t"]
        rest: bytes = entry["k"]
        if len(entry) != 4 or shared.__class__ is not int or not 0 <= shared <= size:
            raise _bad("an entry is no map of `k`, `p`, `t` and `v`")
        # Sorted, and sharing all that can be shared: both show in the first byte that differs.
        if (shared < size and rest[0] <= key[shared]) or not rest:
            raise _bad("its keys are not in order, or not as short as can be")
        if len(value) != CID_SIZE or not value.startswith(CBOR_PREFIX):
            raise _bad("a value is no link to a record")
        key = key[:shared] + rest
        size = len(key)
        keys.append(key)
        values.append(value)
        links.append(link)
    for link in links:
        if link is not None and (len(link) != CID_SIZE or not link.startswith(CBOR_PREFIX)):
            raise _bad("a child is no link to a node")
    return keys, values, links


def _common_height(keys: list[bytes], height: int | None) -> int:
    """The height that all keys have, which must be the one that the place in the tree asks for."""
    for key in keys:
        digest = sha256(key).digest()
        found = _HEIGHTS[digest[0]] if digest[0] else _tall(digest)
        if found != height:
            if height is not None:
                raise _bad("its keys are not all of its height")
            height = found
    return height or 0


def _check_place(
    keys: list[bytes], links: list[bytes | None], height: int, low: bytes | None, high: bytes | None
) -> None:
    if height == 0 and links.count(None) != len(links):
        raise _bad("it has children and no height")
    if not keys:
        if links[0] is None:
            raise _bad("there is nothing in it")
        return
    if (low is not None and keys[0] <= low) or (high is not None and keys[-1] >= high):
        raise _bad("its keys are outside of the place that it has in the tree")


def write_node(node: Node, links: list[bytes | None]) -> bytes:
    """The bytes of a node, with these links to its children."""
    parts = [b"\xa2\x61e", head(4, len(node.keys))]
    last = b""
    for key, value, link in zip(node.keys, node.values, links[1:], strict=True):
        shared = common_prefix(last, key)
        parts += (
            b"\xa4\x61k",
            head(2, len(key) - shared),
            key[shared:],
            b"\x61p",
            head(0, shared),
            b"\x61t\xf6\x61v" if link is None else b"\x61t" + _LINK + link + b"\x61v",
            _LINK,
            value,
        )
        last = key
    parts.append(b"\x61l\xf6" if links[0] is None else b"\x61l" + _LINK + links[0])
    return b"".join(parts)


def _bad(what: str) -> AtprotoError:
    return AtprotoError(Reason.BAD_NODE, f"not a node of a repository: {what}")
