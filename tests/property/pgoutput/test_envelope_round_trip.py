"""MessagePack against another implementation; JSON and MessagePack against each other."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import Position, ProtocolError
from headgate.wire.envelope import (
    DebeziumEncoder,
    Event,
    JsonEncoder,
    MessagePackEncoder,
    Operation,
    packb,
    subject_token,
    unpackb,
)
from headgate.wire.pgoutput import UNCHANGED, Column, Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeCatalog, Value
from tests.property.pgoutput.pgoutput_strategies import i64, names, text, u32, u64, values


@given(values)
def test_msgpack_is_that_of_msgspec(value: Value) -> None:
    data = packb(value)
    assert data == msgspec.msgpack.encode(value)
    assert unpackb(data) == value


@given(values, st.data())
def test_mutated_msgpack(value: Value, data: st.DataObject) -> None:
    packed = bytearray(packb(value))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=5))
    check(bytes(packed))


@given(st.binary(max_size=60))
def test_any_msgpack(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    """What we read, the other implementation reads as well, and as the same."""
    try:
        ours = unpackb(data)
    except ProtocolError:
        return
    assert repr(ours) == repr(msgspec.msgpack.decode(data))


CELLS: dict[int, st.SearchStrategy[Column]] = {
    16: st.sampled_from([b"t", b"f"]),
    17: st.binary(max_size=20).map(lambda raw: b"\\x" + raw.hex().encode()),
    20: i64.map(lambda number: str(number).encode()),
    25: text.map(str.encode),
    701: st.floats(allow_nan=False, allow_infinity=False).map(lambda x: repr(x).removesuffix(".0").encode()),
    1184: st.just(b"2025-12-12 12:00:34.338547+00"),
    1007: st.just(b"{1,NULL,3}"),
}


@st.composite
def row_events(draw: st.DrawFn) -> Event:
    types = draw(st.lists(st.sampled_from(sorted(CELLS)), max_size=20))
    column_names = draw(st.lists(names, min_size=len(types), max_size=len(types), unique=True))
    pairs = zip(column_names, types, strict=True)
    columns = tuple(RelationColumn(draw(st.booleans()), name, oid, -1) for name, oid in pairs)
    relation = Relation(draw(u32), draw(names), draw(names), ReplicaIdentity.FULL, columns)

    def row() -> tuple[Column, ...]:
        return tuple(draw(st.none() | st.just(UNCHANGED) | CELLS[column.type_id]) for column in columns)

    operation = draw(st.sampled_from([Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.READ]))
    old = row() if operation is Operation.UPDATE and draw(st.booleans()) else None
    position = Position(draw(u64), draw(u32))
    return Event(
        operation, position, draw(u64), draw(st.none() | st.integers(0, 2**57)), draw(u32), relation, row(), old
    )


@given(row_events())
def test_formats_agree(event: Event) -> None:
    packed = MessagePackEncoder("sys", TypeCatalog()).encode(event)
    text_form = JsonEncoder("sys", TypeCatalog()).encode(event)
    decoded = msgspec.msgpack.decode(packed)
    loaded = json.loads(text_form)
    assert b"\n" not in text_form
    assert plain(decoded) == loaded
    assert list(decoded) == list(loaded)
    assert list(decoded["data"]) == list(loaded["data"])
    assert json.dumps(loaded, ensure_ascii=False, separators=(",", ":")).encode() == text_form or b"e" in text_form
    assert decoded == unpackb(packed)


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@given(row_events())
def test_debezium_is_json(event: Event) -> None:
    loaded = json.loads(DebeziumEncoder(TypeCatalog(), database="d").encode(event, 0))
    assert event.relation is not None
    gone = event.operation is Operation.DELETE
    assert (loaded["after"] is None) == gone
    if not gone:
        assert list(loaded["after"]) == [column.name for column in event.relation.columns]


@given(text, text)
def test_subject_tokens_are_safe_and_tell_names_apart(one: str, other: str) -> None:
    token = subject_token(one)
    assert token
    assert not set(token) & set(" .*>\t\r\n\x00")
    assert len(token.split()) == 1
    assert (token == subject_token(other)) == (one == other)
