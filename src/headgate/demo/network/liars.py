"""Hosts that lie: every known way to make a commit that a relay must not send on, with the reason it must give.

    for lie in LIES.values():
        forged = lie.tell(repo, frame)     # `frame` was the last commit of `repo`: an update and creates

Lies that a host can sign are signed, with the account's own key: a relay that checks signatures alone believes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headgate.demo.network.repository import Repository
from headgate.wire.atproto import (
    Frame,
    Kind,
    Reason,
    SigningKey,
    cbor,
    cid_of,
    read_car,
    read_frame,
    tid_of,
    tid_us,
    write_car,
    write_frame,
)
from headgate.wire.atproto.commits import read_commit, unsigned_commit, with_signature
from headgate.wire.atproto.frames import MAX_BLOCKS_BYTES, MAX_OPS
from headgate.wire.atproto.keys import K256_ORDER, P256_ORDER

__all__ = ["LIAR_HOST", "LIES", "Lie"]

LIAR_HOST: Final = "liar.example"
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Lie:
    """A way to tamper with a frame, what a relay must say to it, and where the frame comes from if not from home."""

    name: str
    reason: Reason
    tell: Callable[[Repository, bytes], bytes]
    host: str | None = None


@dataclass(slots=True)
class _Forgery:
    """A commit taken apart."""

    repo: Repository
    body: dict[str, Any]
    blocks: dict[bytes, bytes]

    @property
    def ops(self) -> list[dict[str, Any]]:
        return self.body["ops"]  # type: ignore[no-any-return]

    def op(self, action: str) -> dict[str, Any]:
        return next(op for op in self.ops if op["action"] == action)

    def sign(self, key: SigningKey | None = None, **fields: Any) -> None:
        """Put another commit object, with these fields changed, in the place of the one that is there."""
        old = read_commit(self.blocks.pop(self.body["commit"]))
        did, rev = fields.get("did", old.did), fields.get("rev", old.rev)
        unsigned = unsigned_commit(did, rev, fields.get("data", old.data), fields.get("prev", old.prev))
        self.put_commit(with_signature(unsigned, did, (key or self.repo.key).sign(unsigned)))

    def put_commit(self, block: bytes) -> None:
        self.body["commit"] = cid_of(block)
        self.blocks = {self.body["commit"]: block} | self.blocks

    def sealed(self) -> bytes:
        self.body["blocks"] = write_car(self.body["commit"], self.blocks.items())
        return write_frame(Kind.COMMIT, self.body)


LIES: Final[dict[str, Lie]] = {}


def _lie(reason: Reason, host: str | None = None) -> Callable[[Callable[[_Forgery], bytes | None]], None]:
    """Add to the table a function that tampers with a commit taken apart; it may give the whole frame itself."""

    def add(tamper: Callable[[_Forgery], bytes | None]) -> None:
        def tell(repo: Repository, message: bytes) -> bytes:
            frame = read_frame(message)
            forgery = _Forgery(repo, _copied(frame), dict(read_car(frame.body["blocks"]).blocks))
            return tamper(forgery) or forgery.sealed()

        name = tamper.__name__.removeprefix("_")
        LIES[name] = Lie(name, reason, tell, host)

    return add


def _copied(frame: Frame) -> dict[str, Any]:
    return frame.body | {"ops": [dict(op) for op in frame.body["ops"]]}


@_lie(Reason.INVERSION)
def _omitted_op(forgery: _Forgery) -> None:
    forgery.ops.remove(forgery.op("create"))


@_lie(Reason.INVERSION)
def _wrong_prev_data(forgery: _Forgery) -> None:
    forgery.body["prevData"] = cid_of(b"another tree")


@_lie(Reason.INVERSION)
def _wrong_prev(forgery: _Forgery) -> None:
    forgery.op("update")["prev"] = cid_of(b"another record")


@_lie(Reason.INVERSION)
def _update_called_create(forgery: _Forgery) -> None:
    op = forgery.op("update")
    op["action"] = "create"
    del op["prev"]


@_lie(Reason.OP_MISMATCH)
def _wrong_path(forgery: _Forgery) -> None:
    forgery.op("create")["path"] += "x"


@_lie(Reason.OP_MISMATCH)
def _another_record(forgery: _Forgery) -> None:
    forgery.op("create")["cid"] = forgery.op("update")["cid"]


@_lie(Reason.OP_MISMATCH)
def _create_called_delete(forgery: _Forgery) -> None:
    op = forgery.op("create")
    op.update(action="delete", prev=op["cid"], cid=None)


@_lie(Reason.BAD_OPS)
def _path_twice(forgery: _Forgery) -> None:
    forgery.ops.append(dict(forgery.op("create")))


@_lie(Reason.BAD_OPS)
def _update_without_prev(forgery: _Forgery) -> None:
    del forgery.op("update")["prev"]


@_lie(Reason.BAD_SYNTAX)
def _bad_path(forgery: _Forgery) -> None:
    forgery.op("create")["path"] = "no-collection"


@_lie(Reason.TOO_MANY_OPS)
def _too_many_ops(forgery: _Forgery) -> None:
    forgery.body["ops"] = [forgery.op("create")] * (MAX_OPS + 1)


@_lie(Reason.FLAGGED)
def _too_big_flag(forgery: _Forgery) -> None:
    forgery.body["tooBig"] = True


@_lie(Reason.NO_PREV_DATA)
def _no_prev_data(forgery: _Forgery) -> None:
    del forgery.body["prevData"]


@_lie(Reason.CHAIN_BREAK)
def _wrong_since(forgery: _Forgery) -> None:
    forgery.body["since"] = tid_of(tid_us(forgery.body["since"]) - 1)


@_lie(Reason.BLOCK_HASH)
def _flipped_bit(forgery: _Forgery) -> None:
    cid = forgery.op("create")["cid"]
    block = forgery.blocks[cid]
    forgery.blocks[cid] = block[:-1] + bytes((block[-1] ^ 1,))


@_lie(Reason.BLOCK_HASH)
def _exchanged_blocks(forgery: _Forgery) -> None:
    first, second = forgery.op("create")["cid"], forgery.op("update")["cid"]
    forgery.blocks[first], forgery.blocks[second] = forgery.blocks[second], forgery.blocks[first]


@_lie(Reason.MISSING_BLOCK)
def _missing_node(forgery: _Forgery) -> None:
    del forgery.blocks[read_commit(forgery.blocks[forgery.body["commit"]]).data]


@_lie(Reason.MISSING_BLOCK)
def _missing_record(forgery: _Forgery) -> None:
    del forgery.blocks[forgery.op("create")["cid"]]


@_lie(Reason.MISSING_BLOCK)
def _missing_commit(forgery: _Forgery) -> None:
    del forgery.blocks[forgery.body["commit"]]


@_lie(Reason.BLOCKS_TOO_BIG)
def _too_many_blocks(forgery: _Forgery) -> None:
    padding = bytes(MAX_BLOCKS_BYTES)
    forgery.blocks[cid_of(padding)] = padding


@_lie(Reason.BAD_CAR)
def _cut_off_car(forgery: _Forgery) -> bytes:
    forgery.sealed()
    return write_frame(Kind.COMMIT, forgery.body | {"blocks": forgery.body["blocks"][:-10]})


@_lie(Reason.BAD_NODE)
def _node_with_more(forgery: _Forgery) -> None:
    _exchange_root(forgery, lambda node: node | {"x": 1})


@_lie(Reason.BAD_NODE)
def _node_in_disorder(forgery: _Forgery) -> None:
    _exchange_root(forgery, lambda node: node | {"e": [node["e"][0]] * 2})


def _exchange_root(forgery: _Forgery, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    old = read_commit(forgery.blocks[forgery.body["commit"]]).data
    node = cbor.encode(change(cbor.decode_map(forgery.blocks.pop(old))))
    forgery.blocks[cid_of(node)] = node
    forgery.sign(data=cid_of(node))


@_lie(Reason.BAD_SIGNATURE)
def _another_key(forgery: _Forgery) -> None:
    forgery.sign(SigningKey(b"the key of a liar", forgery.repo.key.public.curve))


@_lie(Reason.HIGH_S)
def _high_s(forgery: _Forgery) -> None:
    old = read_commit(forgery.blocks.pop(forgery.body["commit"]))
    order = K256_ORDER if forgery.repo.key.public.curve == "k256" else P256_ORDER
    high = (order - int.from_bytes(old.signature[32:], "big")).to_bytes(32, "big")
    forgery.put_commit(with_signature(old.unsigned, old.did, old.signature[:32] + high))


@_lie(Reason.BAD_SIGNATURE)
def _der_signature(forgery: _Forgery) -> None:
    fields = cbor.decode_map(forgery.blocks.pop(forgery.body["commit"]))
    r, s = fields["sig"][:32], fields["sig"][32:]
    der = b"".join(b"\x02\x21\x00" + part for part in (r, s))
    forgery.put_commit(cbor.encode(fields | {"sig": b"\x30" + bytes((len(der),)) + der}))


@_lie(Reason.BAD_COMMIT)
def _old_version(forgery: _Forgery) -> None:
    _rewrite_commit(forgery, b"\x67version\x03", b"\x67version\x02")


@_lie(Reason.BAD_COMMIT)
def _commit_not_canonical(forgery: _Forgery) -> None:
    _rewrite_commit(forgery, b"\x67version\x03", b"\x67version\x18\x03")


def _rewrite_commit(forgery: _Forgery, old: bytes, new: bytes) -> None:
    """Exchange bytes in the commit, and sign what has become of it."""
    commit = read_commit(forgery.blocks.pop(forgery.body["commit"]))
    unsigned = commit.unsigned.replace(old, new)
    forgery.put_commit(with_signature(unsigned, commit.did, forgery.repo.key.sign(unsigned)))


@_lie(Reason.DID_MISMATCH)
def _another_account(forgery: _Forgery) -> None:
    forgery.sign(did="did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")


@_lie(Reason.REV_MISMATCH)
def _rev_mismatch(forgery: _Forgery) -> None:
    forgery.body["rev"] = tid_of(tid_us(forgery.body["rev"]) + 1)


@_lie(Reason.OLD_REV)
def _old_rev(forgery: _Forgery) -> None:
    forgery.body["rev"] = tid_of(tid_us(forgery.body["since"]) - 1)
    forgery.sign(rev=forgery.body["rev"])


@_lie(Reason.OLD_REV)
def _same_rev(forgery: _Forgery) -> None:
    forgery.body["rev"] = forgery.body["since"]
    forgery.sign(rev=forgery.body["rev"])


@_lie(Reason.FUTURE_REV)
def _future_rev(forgery: _Forgery) -> None:
    forgery.body["rev"] = tid_of(tid_us(forgery.body["rev"]) + _HOUR_US)
    forgery.sign(rev=forgery.body["rev"])


@_lie(Reason.WRONG_HOST, host=LIAR_HOST)
def _wrong_host(forgery: _Forgery) -> None:
    """The frame is sound: only it comes from a host where the account does not live."""


@_lie(Reason.BAD_CBOR)
def _not_canonical(forgery: _Forgery) -> bytes:
    seq = b"\x63seq" + cbor.head(0, forgery.body["seq"])
    long_seq = b"\x63seq\x1b" + forgery.body["seq"].to_bytes(8, "big")
    return forgery.sealed().replace(seq, long_seq, 1)


@_lie(Reason.BAD_CBOR)
def _nested_deep(forgery: _Forgery) -> bytes:
    frame = forgery.sealed()
    blobs = frame.index(b"\x65blobs") + 6
    return frame[:blobs] + b"\x81" * 100_000 + frame[blobs:]


@_lie(Reason.BAD_EVENT)
def _no_ops(forgery: _Forgery) -> None:
    del forgery.body["ops"]
