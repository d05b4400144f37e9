"""Bytes that no server sends: the fast decoder refuses what the reference refuses, and reads the rest alike."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.model import DataError, ProtocolError
from headgate.wire.pgoutput import Begin, Insert, Message, Relation, RelationColumn, ReplicaIdentity, encode_message
from tests.property.cdc_decode.decode_strategies import CATALOG, ranges
from tests.property.cdc_decode.spooled import fast_batches, fast_rows, framed, reference_rows, spooled

TABLE = encode_message(
    Relation(1, "s", "t", ReplicaIdentity.FULL, (RelationColumn(True, "a", 20, -1), RelationColumn(False, "b", 25, -1)))
)


def check(buffer: bytes, relations: list[bytes], form: str, batch_rows: int) -> None:
    arguments: dict[str, Any] = {"types": CATALOG, "form": form}
    wanted = found = None
    with contextlib.suppress(ProtocolError, DataError):
        wanted = reference_rows([buffer], relations, **arguments)
    with contextlib.suppress(ProtocolError, DataError):
        found = fast_rows(
            fast_batches([buffer], relations, batch_rows=batch_rows, images=True, **arguments), images=True
        )
    assert found == wanted


formats = st.sampled_from(["msgpack", "json", "debezium"])
sizes = st.sampled_from([1, 2, 8192])


@given(ranges(odd=True), st.data(), formats, sizes)
def test_mutated_ranges(
    range_: tuple[list[Relation], list[list[Message]]],
    data: st.DataObject,
    form: str,
    batch_rows: int,
) -> None:
    relations = [encode_message(relation) for relation in range_[0]]
    buffer = bytearray(spooled(range_[1][0]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(buffer)))
        buffer[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    check(bytes(buffer), relations, form, batch_rows)


@given(ranges(), st.data(), formats)
def test_mutated_messages(
    range_: tuple[list[Relation], list[list[Message]]],
    data: st.DataObject,
    form: str,
) -> None:
    """With right lengths around them, so that the walk gets to look inside."""
    payloads = [bytearray(encode_message(message)) for message in range_[1][0]]
    if not payloads:
        return
    for payload in data.draw(st.lists(st.sampled_from(payloads), max_size=3)):
        at = data.draw(st.integers(0, len(payload)))
        payload[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    relations = [encode_message(relation) for relation in range_[0]]
    check(framed(map(bytes, payloads)), relations, form, 8192)


@given(ranges(), st.data(), formats)
def test_cut_ranges(
    range_: tuple[list[Relation], list[list[Message]]],
    data: st.DataObject,
    form: str,
) -> None:
    buffer = spooled(range_[1][0])
    cut = buffer[: data.draw(st.integers(0, len(buffer)))]
    check(cut, [encode_message(relation) for relation in range_[0]], form, 8192)


@given(st.binary(max_size=200), formats)
@example(b"\xff\xff\xff\xff", "msgpack")
@example(b"\xff\xff\xff\xffI", "msgpack")
def test_any_bytes(buffer: bytes, form: str) -> None:
    check(buffer, [TABLE], form, 8192)


@given(
    st.lists(st.builds(bytes.__add__, st.sampled_from([b"I", b"U", b"D", b"T", b"M", b"R", b"Y", b"O"]), st.binary())),
    formats,
)
def test_any_messages(payloads: list[bytes], form: str) -> None:
    check(framed([encode_message(Begin(5, 5, 5)), *payloads]), [TABLE], form, 8192)


@given(st.binary(max_size=60), st.binary(max_size=4), formats)
def test_any_row(row: bytes, head: bytes, form: str) -> None:
    good = encode_message(Insert(1, (b"1", b"x")))
    messages = [good, b"I\0\0\0\1N\0\2" + row, b"U\0\0\0\1" + head + row, b"D\0\0\0\1K\0\2" + row]
    for message in messages:
        check(framed([encode_message(Begin(5, 5, 5)), good, message]), [TABLE], form, 8192)
