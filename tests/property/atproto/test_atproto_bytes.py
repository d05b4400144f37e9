"""Bytes: DAG-CBOR against another reader, round trips, and input that somebody means ill with."""

from __future__ import annotations

from typing import Any

import cbrrr
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.demo.network.repository import Repository, create, delete, update
from headgate.relay.validate import validate
from headgate.relay.verdict import Accepted, RepoState, Verdict
from headgate.wire.atproto import (
    AtprotoError,
    Kind,
    base58,
    cbor,
    cid_of,
    cid_text,
    next_tid,
    parse_cid,
    parse_document,
    parse_multikey,
    read_car,
    read_commit,
    read_event,
    read_frame,
    resequence,
    tid_of,
    tid_us,
    write_car,
    write_frame,
)
from headgate.wire.atproto.jetstream import json_value

NOW_US = 1_790_000_000_000_000
HOST = "pds.example"

cids = st.binary(max_size=8).map(cid_of)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | floats | texts | cids
values = st.recursive(
    scalars | st.binary(max_size=30).filter(lambda raw: not raw.startswith((b"\x01", b"\x12"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def other_decode(raw: bytes) -> Any:
    return cbrrr.decode_dag_cbor(raw)


def as_plain(value: Any) -> Any:
    """The other reader's value, with links as the bytes of their CID."""
    if isinstance(value, cbrrr.CID):
        return bytes(value)
    if isinstance(value, list):
        return [as_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: as_plain(inner) for key, inner in value.items()}
    return value


@given(value=values)
def test_a_value_comes_back_and_others_read_it_the_same(value: Any) -> None:
    raw = cbor.encode(value)
    assert cbor.decode(raw) == value
    assert cbor.decode_from(raw, 0) == (value, len(raw))
    assert as_plain(other_decode(raw)) == value


@settings(max_examples=300)
@given(value=values, data=st.data())
def test_what_is_taken_others_take_too(value: Any, data: st.DataObject) -> None:
    """Bytes changed by chance: nothing but AtprotoError comes out, and what passes passes the stricter reader, too."""
    raw = bytearray(cbor.encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = cbor.decode(bytes(raw))
    except AtprotoError:
        return
    assert as_plain(other_decode(bytes(raw))) == found
    json_value(found)


@given(raw=st.binary(max_size=200))
def test_bytes_by_chance_raise_our_error_only(raw: bytes) -> None:
    for read in (cbor.decode, read_car, read_commit, read_frame, lambda raw: cbor.decode_from(raw, 0)):
        try:
            read(raw)
        except AtprotoError:
            continue


@given(raw=st.binary(max_size=60), cid=cids)
def test_small_codings_come_back(raw: bytes, cid: bytes) -> None:
    assert base58.decode(base58.encode(raw)) == raw
    assert parse_cid(cid_text(cid)) == cid


@given(text=st.text(max_size=80))
def test_keys_by_chance_raise_our_error_only(text: str) -> None:
    try:
        parse_multikey("z" + text)
    except AtprotoError:
        return


@given(us=st.integers(0, 2**53 - 2), other=st.integers(0, 2**53 - 2), clock=st.integers(0, 1023))
def test_the_order_of_tids_is_the_order_of_time(us: int, other: int, clock: int) -> None:
    assert tid_us(tid_of(us, clock)) == us
    assert (tid_of(us) < tid_of(other)) == (us < other)
    assert next_tid(tid_of(us, clock), other) > tid_of(us, clock)


@given(blocks=st.lists(st.binary(max_size=300), max_size=6))
def test_a_car_comes_back(blocks: list[bytes]) -> None:
    held = {cid_of(block): block for block in blocks}
    car = read_car(write_car(cid_of(b"root"), held.items()))
    assert (car.roots, car.blocks) == ((cid_of(b"root"),), held)


@given(fields=st.dictionaries(texts, values, max_size=5), seq=st.integers(1, 2**53 - 1), new=st.integers(1, 2**53 - 1))
def test_a_new_number_keeps_unknown_fields(fields: dict[str, Any], seq: int, new: int) -> None:
    body = fields | {"did": "did:web:a.test", "seq": seq}
    frame = read_frame(write_frame(Kind.ACCOUNT, body))
    assert resequence(frame, new) == write_frame(Kind.ACCOUNT, body | {"seq": new})


class Relay:
    """One account as a relay knows it, and the next commit of it."""

    def __init__(self) -> None:
        self.repo = Repository("alice", HOST)
        self.document = parse_document(self.repo.did, self.repo.document())
        self.repo.commit([create(f"a.b.c/{n}", {"n": n}) for n in range(30)], seq=1, now_us=NOW_US)
        self.state = RepoState(self.repo.rev, self.repo.data)
        writes = [update("a.b.c/3", {"n": "x"}), delete("a.b.c/4"), create("a.b.c/new", {"n": "new"})]
        self.message = self.repo.commit(writes, seq=2, now_us=NOW_US)

    def judge(self, message: bytes) -> Verdict | None:
        try:
            frame = read_frame(message)
        except AtprotoError:
            return None
        return validate(frame, host=HOST, state=self.state, document=self.document, now_us=NOW_US, fresh=True)


def test_a_commit_cut_off_anywhere_is_refused() -> None:
    relay = Relay()
    assert isinstance(relay.judge(relay.message), Accepted)
    for size in range(len(relay.message)):
        assert relay.judge(relay.message[:size]) is None, size


def test_a_bit_changed_anywhere_changes_no_record() -> None:
    """The envelope has fields that nobody signs, such as the time; what is signed and proved cannot be changed."""
    relay = Relay()
    original = read_event(read_frame(relay.message))
    for position in range(len(relay.message)):
        forged = bytearray(relay.message)
        forged[position] ^= 1 << position % 8
        verdict = relay.judge(bytes(forged))
        if isinstance(verdict, Accepted):
            for field in ("did", "rev", "since", "commit", "ops", "prev_data"):
                assert getattr(verdict.event, field, None) == getattr(original, field), (position, field)


@given(data=st.data())
def test_blocks_changed_by_chance_are_refused_by_our_error_only(data: st.DataObject) -> None:
    relay = _RELAY
    body = read_frame(relay.message).body
    blocks = bytearray(body["blocks"])
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(blocks) - 1))
        blocks[start : start + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    verdict = relay.judge(write_frame(Kind.COMMIT, body | {"blocks": bytes(blocks)}))
    assert verdict is not None
    if isinstance(verdict, Accepted):
        assert _same_blocks(bytes(blocks), body["blocks"])


def _same_blocks(blocks: bytes, original: bytes) -> bool:
    """Blocks that the commit does not need, or the roots of the CAR, may differ."""
    found, wanted = read_car(blocks).blocks, read_car(original).blocks
    return all(wanted.get(cid, block) == block for cid, block in found.items())


_RELAY = Relay()
