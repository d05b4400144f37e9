"""A signed repository in memory, as a host keeps it: for a simulated network and for tests.

    repo = Repository("alice", host="pds.example")
    frame = repo.commit([create("app.bsky.feed.post/3k...", {"text": "hi"})], seq=1, now_us=...)

A commit brings the blocks that a host of the reference implementation would: the new nodes, the records, and the nodes
that prove each op. Nothing here knows the time or chance: the same calls give the same bytes.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from headgate.wire.atproto import Action, Kind, SigningKey, cbor, cid_of, next_tid, write_car, write_frame
from headgate.wire.atproto.commits import unsigned_commit, with_signature
from headgate.wire.atproto.mst import Tree
from headgate.wire.atproto.mst_node import EMPTY_ROOT

__all__ = ["Repository", "Write", "create", "delete", "plc_did", "time_text", "update"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Write:
    """A change to a record, given as its fields or as the bytes of its block; deletes have none."""

    action: Action
    path: str
    record: Mapping[str, Any] | bytes | None = None


def create(path: str, record: Mapping[str, Any] | bytes) -> Write:
    return Write(Action.CREATE, path, record)


def update(path: str, record: Mapping[str, Any]) -> Write:
    return Write(Action.UPDATE, path, record)


def delete(path: str) -> Write:
    return Write(Action.DELETE, path)


def plc_did(name: str) -> str:
    """A did:plc that is always the same for a name."""
    return "did:plc:" + b32encode(sha256(name.encode()).digest()[:15]).decode().lower()


def time_text(now_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=now_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Repository:
    """An account and its records. Every method that makes a frame takes the seq and the time for it."""

    def __init__(self, name: str, host: str, *, curve: str = "k256", scheme: str = "https") -> None:
        self.did = plc_did(name)
        self.handle = f"{name}.test"
        self.host = host
        self.key = SigningKey(sha256(b"key of " + name.encode()).digest(), curve)
        self.rev: str | None = None
        self.data = EMPTY_ROOT
        self.head: bytes | None = None
        self.records: dict[str, bytes] = {}
        self._scheme = scheme
        self._tree = Tree(EMPTY_ROOT, {})
        self._commit = b""

    def copy(self) -> Repository:
        """Return a copy of the account as it is now, which may diverge from here."""
        return deepcopy(self, {id(self.key): self.key})

    def commit(self, writes: Sequence[Write], *, seq: int, now_us: int) -> bytes:
        """Apply writes; the #commit frame that tells of them."""
        since, before = self.rev, self.data
        ops, records = [], {}
        for write in writes:
            op, record = self._apply(write)
            ops.append(op)
            records.update(record)
        nodes = self._sign(now_us) | self._tree.proof(write.path.encode() for write in writes)
        assert self.head is not None
        blocks = {self.head: self._commit} | nodes | records
        body = {
            "ops": ops,
            "rev": self.rev,
            "seq": seq,
            "repo": self.did,
            "time": time_text(now_us),
            "blobs": [],
            "since": since,
            "blocks": write_car(self.head, blocks.items()),
            "commit": self.head,
            "rebase": False,
            "tooBig": False,
        }
        return write_frame(Kind.COMMIT, body if since is None else body | {"prevData": before})

    def sync(self, *, seq: int, now_us: int) -> bytes:
        """The #sync frame of the state as it is. There must have been a commit."""
        assert self.head is not None
        blocks = write_car(self.head, [(self.head, self._commit)])
        return write_frame(Kind.SYNC, self._about(seq, now_us) | {"rev": self.rev, "blocks": blocks})

    def identity(self, *, seq: int, now_us: int, handle: str | None = None) -> bytes:
        return write_frame(Kind.IDENTITY, self._about(seq, now_us) | {"handle": handle or self.handle})

    def account(self, *, seq: int, now_us: int, active: bool = True, status: str | None = None) -> bytes:
        body = self._about(seq, now_us) | {"active": active}
        return write_frame(Kind.ACCOUNT, body if status is None else body | {"status": status})

    def document(self) -> dict[str, Any]:
        """The DID document."""
        return {
            "id": self.did,
            "alsoKnownAs": [f"at://{self.handle}"],
            "verificationMethod": [
                {
                    "id": f"{self.did}#atproto",
                    "type": "Multikey",
                    "controller": self.did,
                    "publicKeyMultibase": self.key.multikey,
                }
            ],
            "service": [
                {
                    "id": "#atproto_pds",
                    "type": "AtprotoPersonalDataServer",
                    "serviceEndpoint": f"{self._scheme}://{self.host}",
                }
            ],
        }

    def export(self) -> bytes:
        """The whole repository as a CAR, as getRepo gives it."""
        assert self.head is not None
        blocks = {self.head: self._commit} | self._tree.nodes()
        blocks |= {cid_of(record): record for record in self.records.values()}
        return write_car(self.head, blocks.items())

    def _about(self, seq: int, now_us: int) -> dict[str, Any]:
        return {"did": self.did, "seq": seq, "time": time_text(now_us)}

    def _apply(self, write: Write) -> tuple[dict[str, Any], dict[bytes, bytes]]:
        """Change the tree; the op that says so, and the block of the record."""
        key, old = write.path.encode(), self.records.pop(write.path, None)
        prev = None if old is None else cid_of(old)
        op: dict[str, Any] = {"action": write.action.value, "path": write.path, "cid": None}
        if prev is not None:
            op["prev"] = prev
        if write.record is None:
            assert prev is not None, "only what is there can be deleted"
            self._tree.remove(key, prev)
            return op, {}
        given = write.record
        record = self.records[write.path] = given if isinstance(given, bytes) else cbor.encode(dict(given))
        op["cid"] = cid = cid_of(record)
        if prev is None:
            self._tree.insert(key, cid)
        else:
            self._tree.replace(key, prev, cid)
        return op, {cid: record}

    def _sign(self, now_us: int) -> dict[bytes, bytes]:
        """A new commit object of the tree as it is; the nodes that are new."""
        self.data = self._tree.root()
        nodes, self._tree.written = self._tree.written, {}
        self.rev = next_tid(self.rev, now_us)
        unsigned = unsigned_commit(self.did, self.rev, self.data, None)
        self._commit = with_signature(unsigned, self.did, self.key.sign(unsigned))
        self.head = cid_of(self._commit)
        return nodes
