"""The commit object: the signed root of a repository.

It has six fields, so its one form in DAG-CBOR can be written down. That is how strictness is checked here, and not by
encoding anew: one signature in 2**18 looks like a CID, which libipld would turn into a link.

Specification: AT Protocol, "Repository", Commit Objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import libipld

from headgate.wire.atproto.cbor import head
from headgate.wire.atproto.cid import is_cid
from headgate.wire.atproto.errors import AtprotoError, Reason
from headgate.wire.atproto.syntax import is_did, is_tid

__all__ = ["RepoCommit", "read_commit", "unsigned_commit", "with_signature"]

_FIELDS = {"did", "rev", "sig", "data", "prev", "version"}
_LINK = b"\xd8\x2a\x58\x25\x00"  # DAG-CBOR, Links: tag 42, a byte string of 37, the prefix 0
_SIGNATURE_SIZE = 64  # r and s, of 32 bytes each
_MAX_BYTES = 4096  # the longest DID has 2048
_SIGNATURE_HEAD = b"\x63sig\x58\x40"


@dataclass(frozen=True, slots=True)
class RepoCommit:
    """A commit object; `unsigned` is what its signature is of."""

    did: str
    rev: str
    data: bytes
    prev: bytes | None
    signature: bytes
    unsigned: bytes


def read_commit(block: bytes) -> RepoCommit:
    """Read a commit of version 3, or raise BAD_COMMIT."""
    if len(block) > _MAX_BYTES:
        raise _bad("it is too long")
    try:
        fields = libipld.decode_dag_cbor(block)
    except (ValueError, RecursionError) as error:
        raise _bad("it is not DAG-CBOR") from error
    if not isinstance(fields, dict) or fields.keys() != _FIELDS or fields["version"] != 3:
        raise _bad("it has not the six fields of version 3")
    did, rev, data, prev, signature = (fields[name] for name in ("did", "rev", "data", "prev", "sig"))
    if not isinstance(did, str) or not is_did(did) or not isinstance(rev, str) or not is_tid(rev):
        raise _bad("its DID or rev is none")
    if not is_cid(data) or not (prev is None or is_cid(prev)):
        raise _bad("its data or prev is no CID")
    if not isinstance(signature, bytes):
        raise _bad("its signature is no byte string")
    if len(signature) != _SIGNATURE_SIZE:
        raise AtprotoError(Reason.BAD_SIGNATURE, f"a signature has 64 bytes, not {len(signature)}")
    unsigned = unsigned_commit(did, rev, data, prev)
    if with_signature(unsigned, did, signature) != block:
        raise _bad("it is not in the one form that DAG-CBOR allows")
    return RepoCommit(did, rev, data, prev, signature, unsigned)


def unsigned_commit(did: str, rev: str, data: bytes, prev: bytes | None) -> bytes:
    """What is signed: the commit without its signature ("Repository", Commit Objects)."""
    return b"".join(
        (
            b"\xa5\x63did",
            head(3, len(did)),
            did.encode(),
            b"\x63rev\x6d",
            rev.encode(),
            b"\x64data",
            _LINK,
            data,
            b"\x64prev",
            b"\xf6" if prev is None else _LINK + prev,
            b"\x67version\x03",
        )
    )


def with_signature(unsigned: bytes, did: str, signature: bytes) -> bytes:
    """The commit object: `sig` is put behind `rev`, where the order of keys wants it."""
    cut = 5 + len(head(3, len(did))) + len(did) + 5 + 13
    return b"".join((b"\xa6", unsigned[1:cut], _SIGNATURE_HEAD, signature, unsigned[cut:]))


def _bad(what: str) -> AtprotoError:
    return AtprotoError(Reason.BAD_COMMIT, f"not a commit: {what}")
