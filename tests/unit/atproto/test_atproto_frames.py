"""Frames and the commit object, byte by byte."""

from __future__ import annotations

import ast
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.demo.network.repository import Repository, create
from headgate.wire import atproto
from headgate.wire.atproto import (
    MAX_FRAME_BYTES,
    MAX_SEQ,
    Account,
    Action,
    AtprotoError,
    Commit,
    ErrorNote,
    Identity,
    Info,
    Kind,
    Reason,
    SigningKey,
    Sync,
    cbor,
    cid_of,
    error_frame,
    info_frame,
    read_car,
    read_commit,
    read_event,
    read_frame,
    resequence,
    without_handle,
    write_frame,
)
from headgate.wire.atproto.commits import unsigned_commit, with_signature

NOW_US = 1_790_000_000_000_000
COMMIT_HEADER = bytes.fromhex("a2 6174 67 23636f6d6d6974 626f70 01")
DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
REV = "3jzfcijpj2z2a"
CID = cid_of(b"anything")
TIME = "2026-09-21T14:13:20.000Z"


def commit_body(**changes: Any) -> dict[str, Any]:
    body = read_frame(Repository("alice", "h.test").commit([create("a.b.c/x", {})], seq=5, now_us=NOW_US)).body
    return body | changes


def refused(message: bytes) -> Reason:
    with pytest.raises(AtprotoError) as caught:
        read_event(read_frame(message))
    return caught.value.reason


def test_the_header_is_the_bytes_that_the_protocol_says() -> None:
    assert write_frame(Kind.COMMIT, {}) == COMMIT_HEADER + b"\xa0"


def test_the_error_frame_is_what_the_reference_host_sends() -> None:
    expected = b"\xa1\x62op\x20" + b"\xa2\x65error\x6cFutureCursor\x67message\x75Cursor in the future."
    assert error_frame("FutureCursor", "Cursor in the future.") == expected
    assert error_frame("ConsumerTooSlow") == b"\xa1\x62op\x20" + b"\xa1\x65error\x6fConsumerTooSlow"
    frame = read_frame(expected)
    assert (frame.kind, frame.seq) == (Kind.ERROR, 0)
    assert read_event(frame) == ErrorNote("FutureCursor", "Cursor in the future.")


def test_the_info_frame() -> None:
    message = info_frame("OutdatedCursor")
    assert message == b"\xa2\x61t\x65#info\x62op\x01" + b"\xa1\x64name\x6eOutdatedCursor"
    assert read_event(read_frame(message)) == Info("OutdatedCursor", None)
    assert read_event(read_frame(info_frame("OutdatedCursor", "old"))) == Info("OutdatedCursor", "old")


def test_a_commit_is_read() -> None:
    repo = Repository("alice", "h.test")
    frame = read_frame(repo.commit([create("a.b.c/x", {"n": 1})], seq=5, now_us=NOW_US))
    assert (frame.kind, frame.seq, frame.did) == (Kind.COMMIT, 5, repo.did)
    event = read_event(frame)
    assert isinstance(event, Commit)
    assert (event.did, event.seq, event.rev, event.since, event.commit) == (repo.did, 5, repo.rev, None, repo.head)
    assert event.prev_data is None
    assert not event.flagged
    [op] = event.ops
    assert (op.action, op.path, op.collection, op.rkey, op.prev) == (Action.CREATE, "a.b.c/x", "a.b.c", "x", None)
    assert op.cid in read_car(event.blocks).blocks


def test_the_other_events_are_read() -> None:
    repo = Repository("alice", "h.test")
    repo.commit([], seq=1, now_us=NOW_US)
    time = "2026-09-21T14:13:20.000Z"
    sync = read_event(read_frame(repo.sync(seq=5, now_us=NOW_US)))
    assert isinstance(sync, Sync)
    assert (sync.did, sync.rev, sync.time) == (repo.did, repo.rev, time)
    identity = read_event(read_frame(repo.identity(seq=6, now_us=NOW_US)))
    assert identity == Identity(repo.did, 6, time, "alice.test")
    account = read_event(read_frame(repo.account(seq=7, now_us=NOW_US, active=False, status="suspended")))
    assert account == Account(repo.did, 7, time, False, "suspended")


@pytest.mark.parametrize(
    "header",
    [{"op": 1, "t": "#later"}, {"op": 2, "t": "#commit"}, {"op": 1}, {"op": 1, "t": 5}, {"op": -2}],
    ids=repr,
)
def test_frames_of_a_later_protocol_are_to_be_passed_over(header: dict[str, Any]) -> None:
    frame = read_frame(cbor.encode(header) + cbor.encode({"x": 1}))
    assert frame.kind is Kind.UNKNOWN


def test_a_header_may_have_more_fields() -> None:
    frame = read_frame(cbor.encode({"op": 1, "t": "#info", "x": 1}) + cbor.encode({"name": "n"}))
    assert read_event(frame) == Info("n", None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", Reason.BAD_CBOR),
        (b"\x80\xa0", Reason.BAD_FRAME),
        (b"\xa0\xa0", Reason.BAD_FRAME),
        (cbor.encode({"op": True, "t": "#commit"}) + b"\xa0", Reason.BAD_FRAME),
        (COMMIT_HEADER, Reason.BAD_CBOR),
        (COMMIT_HEADER + b"\x80", Reason.BAD_CBOR),
        (COMMIT_HEADER + b"\xa0", Reason.BAD_FRAME),
        (COMMIT_HEADER + b"\xa0\x00", Reason.BAD_CBOR),
        (bytes(MAX_FRAME_BYTES + 1), Reason.FRAME_TOO_BIG),
        (write_frame(Kind.ACCOUNT, {"seq": 1, "did": DID, "x": bytes(100_000)}), Reason.FRAME_TOO_BIG),
        (write_frame(Kind.ACCOUNT, {"seq": 0, "did": DID}), Reason.BAD_FRAME),
        (write_frame(Kind.ACCOUNT, {"seq": MAX_SEQ + 1, "did": DID}), Reason.BAD_FRAME),
        (write_frame(Kind.ACCOUNT, {"seq": True, "did": DID}), Reason.BAD_FRAME),
        (write_frame(Kind.ACCOUNT, {"seq": 1, "did": 1}), Reason.BAD_FRAME),
    ],
    ids=range(14),
)
def test_what_ends_the_connection(message: bytes, reason: Reason) -> None:
    with pytest.raises(AtprotoError) as caught:
        read_frame(message)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ops": None}, Reason.BAD_EVENT),
        ({"ops": [1]}, Reason.BAD_EVENT),
        ({"ops": [{}]}, Reason.BAD_EVENT),
        ({"ops": [{"action": "move", "path": "a.b.c/x", "cid": CID}]}, Reason.BAD_OPS),
        ({"ops": [{"action": "create", "path": "x", "cid": CID}]}, Reason.BAD_SYNTAX),
        ({"ops": [{"action": "create", "path": "a.b.c/x", "cid": "x"}]}, Reason.BAD_EVENT),
        ({"ops": [{"action": "create", "path": "a.b.c/x", "cid": b"x"}]}, Reason.BAD_EVENT),
        ({"ops": [{}] * 201}, Reason.TOO_MANY_OPS),
        ({"rev": None}, Reason.BAD_EVENT),
        ({"rev": "x"}, Reason.BAD_SYNTAX),
        ({"since": "x"}, Reason.BAD_SYNTAX),
        ({"since": 1}, Reason.BAD_EVENT),
        ({"time": 1}, Reason.BAD_EVENT),
        ({"commit": None}, Reason.BAD_EVENT),
        ({"commit": b"x"}, Reason.BAD_EVENT),
        ({"blocks": None}, Reason.BAD_EVENT),
        ({"blocks": bytes(2_000_001)}, Reason.BLOCKS_TOO_BIG),
        ({"prevData": "x"}, Reason.BAD_EVENT),
        ({"repo": "nobody"}, Reason.BAD_SYNTAX),
    ],
)
def test_what_is_no_commit_event(changes: dict[str, Any], reason: Reason) -> None:
    assert refused(write_frame(Kind.COMMIT, commit_body(**changes))) is reason


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.SYNC, {"rev": REV, "time": TIME}),
        (Kind.SYNC, {"rev": 1, "time": TIME, "blocks": b""}),
        (Kind.IDENTITY, {}),
        (Kind.IDENTITY, {"time": TIME, "handle": 1}),
        (Kind.ACCOUNT, {"time": TIME}),
        (Kind.ACCOUNT, {"time": TIME, "active": 1}),
        (Kind.ACCOUNT, {"time": TIME, "active": True, "status": 1}),
        (Kind.INFO, {}),
    ],
    ids=range(8),
)
def test_what_is_no_other_event(kind: Kind, body: dict[str, Any]) -> None:
    assert refused(write_frame(kind, {"did": DID, "seq": 1} | body)) is Reason.BAD_EVENT


class TestBigFrames:
    def test_one_with_many_blocks_is_read(self) -> None:
        body = commit_body(blocks=bytes(1_500_000), ops=[{"action": "create", "path": "a.b.c/fblocksZ", "cid": CID}])
        message = write_frame(Kind.COMMIT, body)
        frame = read_frame(message)
        assert frame.body == body
        assert isinstance(read_event(frame), Commit)
        assert resequence(frame, 5) == message

    @pytest.mark.parametrize(
        "extra",
        [
            {"x": [{}] * 500_000},
            {"x": [{}] * 500_000, "blocks": bytes(70_000)},
            {"x": b"\x66blocks\x5a\0\x08\0\0" + bytes(600_000)},
            {"a": {"blocks": bytes(600_000)}},
        ],
        ids=["no blocks", "few blocks", "in bytes", "in a map"],
    )
    def test_one_that_is_big_by_something_else_is_refused_before_it_takes_memory(self, extra: dict[str, Any]) -> None:
        with pytest.raises(AtprotoError) as caught:
            read_frame(write_frame(Kind.COMMIT, commit_body() | extra))
        assert caught.value.reason in (Reason.FRAME_TOO_BIG, Reason.BAD_CBOR)

    def test_it_has_one_form_too(self) -> None:
        message = write_frame(Kind.COMMIT, commit_body(blocks=bytes(600_000), seq=5))
        with pytest.raises(AtprotoError) as caught:
            read_frame(message.replace(b"\x63seq\x05", b"\x63seq\x18\x05"))
        assert caught.value.reason is Reason.BAD_CBOR


def test_an_unknown_frame_has_no_event() -> None:
    assert refused(cbor.encode({"op": 1, "t": "#later"}) + b"\xa0") is Reason.BAD_EVENT


@pytest.mark.parametrize("seq", [1, 23, 24, 255, 256, 65_536, 2**32, MAX_SEQ])
def test_a_new_number_changes_nothing_else(seq: int) -> None:
    body = {"did": DID, "seq": 300, "time": TIME, "active": True, "later": {"a": [1, CID]}, "more": b"x"}
    message = write_frame(Kind.ACCOUNT, body)
    assert resequence(read_frame(message), seq) == write_frame(Kind.ACCOUNT, body | {"seq": seq})


@pytest.mark.parametrize(
    "trap",
    [{"aaa": {"seq": 300}}, {"zzz": {"seq": 300}}, {"aaa": "cseq\x19"}, {"zzz": b"\x63seq\x19\x01\x2c"}],
    ids=["map before", "map behind", "text", "bytes"],
)
def test_the_right_number_is_changed(trap: dict[str, Any]) -> None:
    body = {"did": DID, "seq": 300, "time": TIME} | trap
    frame = read_frame(write_frame(Kind.IDENTITY, body))
    assert resequence(frame, 7) == write_frame(Kind.IDENTITY, body | {"seq": 7})


def test_bytes_that_look_like_a_cid_stay_bytes() -> None:
    raw = cbor.encode({"did": DID, "seq": 300, "time": TIME, "unknown": 0})
    message = raw.replace(b"\x67unknown\x00", b"\x67unknown\x58\x24" + CID)
    header = write_frame(Kind.IDENTITY, {})[:-1]
    assert resequence(read_frame(header + message), 301) == header + message.replace(b"\x19\x01\x2c", b"\x19\x01\x2d")


def test_info_has_no_number() -> None:
    with pytest.raises(AtprotoError):
        resequence(read_frame(info_frame("x")), 5)


def test_a_handle_can_be_taken_out() -> None:
    frame = without_handle(read_frame(Repository("alice", "h.test").identity(seq=5, now_us=NOW_US)))
    event = read_event(read_frame(resequence(frame, 9)))
    assert isinstance(event, Identity)
    assert (event.seq, event.handle) == (9, None)


class TestCommitObject:
    key = SigningKey(b"seed")
    unsigned = unsigned_commit(DID, REV, CID, None)

    def test_it_is_signed_without_its_signature(self) -> None:
        block = with_signature(self.unsigned, DID, self.key.sign(self.unsigned))
        fields = cbor.decode_map(block)
        assert list(fields) == ["did", "rev", "sig", "data", "prev", "version"]
        commit = read_commit(block)
        assert (commit.did, commit.rev, commit.data, commit.prev) == (DID, REV, CID, None)
        del fields["sig"]
        assert cbor.encode(fields) == commit.unsigned
        self.key.public.verify(commit.signature, commit.unsigned)

    def test_it_may_name_the_one_before(self) -> None:
        assert read_commit(with_signature(unsigned_commit(DID, REV, CID, CID), DID, bytes(64))).prev == CID

    def test_a_signature_that_looks_like_a_cid_is_still_one(self) -> None:
        signature = b"\x01\x71\x12\x3c" + bytes(60)
        assert read_commit(with_signature(self.unsigned, DID, signature)).signature == signature

    @pytest.mark.parametrize(
        "changes",
        [
            {"version": 2},
            {"version": 3.0},
            {"did": "nobody"},
            {"did": 1},
            {"rev": "x"},
            {"rev": None},
            {"data": None},
            {"data": b"x"},
            {"prev": b"x"},
            {"prev": 1},
            {"sig": "x" * 64},
            {"more": 1},
        ],
        ids=repr,
    )
    def test_what_is_no_commit(self, changes: dict[str, Any]) -> None:
        fields = {"did": DID, "rev": REV, "data": CID, "prev": None, "version": 3, "sig": bytes(64)} | changes
        with pytest.raises(AtprotoError) as caught:
            read_commit(cbor.encode(fields))
        assert caught.value.reason is Reason.BAD_COMMIT

    @pytest.mark.parametrize("raw", [b"", b"\x80", b"\xa0", b"\x81" * 4_000, bytes(4_097)], ids=range(5))
    def test_what_is_not_even_a_map(self, raw: bytes) -> None:
        with pytest.raises(AtprotoError) as caught:
            read_commit(raw)
        assert caught.value.reason is Reason.BAD_COMMIT

    def test_all_fields_must_be_there(self) -> None:
        whole = {"did": DID, "rev": REV, "data": CID, "prev": None, "version": 3, "sig": bytes(64)}
        read_commit(cbor.encode(whole))
        for name in whole:
            with pytest.raises(AtprotoError):
                read_commit(cbor.encode({key: value for key, value in whole.items() if key != name}))


def test_errors_can_be_pickled() -> None:
    error = AtprotoError(Reason.HIGH_S, "message", where="here")
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, again.message, again.where) == (Reason.HIGH_S, "message", "here")


def test_public_names_are_pinned() -> None:
    assert sorted(set(atproto.__all__)) == sorted(atproto.__all__)
    assert all(hasattr(atproto, name) for name in atproto.__all__)


def test_only_these_packages_are_used() -> None:
    allowed = sys.stdlib_module_names | {"headgate", "libipld", "coincurve", "cryptography", "msgspec"}
    for path in Path(next(iter(atproto.__path__))).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path
