"""What a user of the decoder relies on: columns, batches, buffers, errors."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from headgate.kernels.changes import (
    Format,
    RangeDecoder,
    columns,
    compile_ahead,
    gaps,
    record_schema,
    reference,
    tables,
)
from headgate.model import DataError, ProtocolError, UsageError
from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldKind,
    OldRow,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Row,
    Truncate,
    Type,
    Update,
    encode_message,
)
from headgate.wire.pgtypes import TypeCatalog
from tests.property.cdc_decode.spooled import SYSTEM, TIMELINE, fast_batches, fast_rows, framed, reference_rows, spooled

TYPES = TypeCatalog()
BEGIN = Begin(0x16B374D848, 818769634338547, 77)
OIDS = {"id": 20, "name": 25, "price": 1700, "at": 1184, "on": 16, "raw": 17, "doc": 3802, "day": 1082, "ratio": 701}
ROW: Row = (
    b"1", 'é "x"'.encode(), b"1.10", b"2025-12-12 12:00:34.338547+00", b"t", b"\\x00ff", b'{"a": 1}', b"2025-01-31",
    b"0.1",
)  # fmt: skip


def table(relation_id: int = 1, name: str = "item", **oids: int) -> Relation:
    columns = tuple(RelationColumn(key == "id", key, oid, -1) for key, oid in (oids or OIDS).items())
    return Relation(relation_id, "public", name, ReplicaIdentity.DEFAULT, columns)


ITEM = encode_message(table())


def decode(*messages: Message, relations: tuple[bytes, ...] = (ITEM,), **options: Any) -> list[dict[str, Any]]:
    batches = fast_batches([spooled(messages)], relations, types=TYPES, **options)
    return fast_rows(batches, images=options.get("images", False))


def test_columns() -> None:
    (row,) = decode(BEGIN, Insert(1, ROW))
    payload = msgspec.msgpack.decode(row.pop("_payload"))
    assert row == {
        "_topic": "cdc.public.item.insert",
        "_position": f"{TIMELINE:08X}00000016B374D848-00000000",
        "_op": "insert",
        "_schema": "public",
        "_table": "item",
        "_xid": 77,
        "_commit_time": 1765454434338547,
    }
    assert payload["msg_id"] == f"{SYSTEM}-{row['_position']}"
    assert payload["data"] == {
        "id": 1, "name": 'é "x"', "price": "1.10", "at": "2025-12-12T12:00:34.338547Z", "on": True, "raw": b"\x00\xff",
        "doc": '{"a": 1}', "day": "2025-01-31", "ratio": 0.1,
    }  # fmt: skip


def test_arrow_types() -> None:
    schema = record_schema(images=True)
    assert schema.field("_commit_time").type == pa.timestamp("us", tz="UTC")
    assert schema.field("_xid").type == pa.int64()
    assert schema.field("_payload").type == pa.binary()
    assert schema.names[-3:] == ["_key", "_before", "_after"]
    assert record_schema().names == schema.names[:-3]


def test_ordinals_and_positions_of_every_kind_of_change() -> None:
    rows = decode(
        BEGIN,
        table(),
        Insert(1, ROW),
        Truncate((1, 2, 1), True, False),
        LogicalMessage(True, 5, "p q", b"x"),
        Delete(1, OldRow(OldKind.KEY, ROW)),
        Begin(0x16B374D900, 0, 0),
        LogicalMessage(False, 0x16B374D900, "alone", b"y"),
        relations=(ITEM, encode_message(table(2, "other"))),
        batch_rows=2,
    )
    assert [(row["_position"][18:], row["_op"], row["_table"]) for row in rows] == [
        ("74D848-00000000", "insert", "item"),
        ("74D848-00000001", "truncate", "item"),
        ("74D848-00000002", "truncate", "other"),
        ("74D848-00000003", "truncate", "item"),
        ("74D848-00000004", "message", None),
        ("74D848-00000005", "delete", "item"),
        ("74D8FF-00000000", "message", None),
    ]
    assert [row["_topic"] for row in rows[4:]] == [
        "cdc.message.p%20q.message", "cdc.public.item.delete", "cdc.message.alone.message",
    ]  # fmt: skip
    assert (rows[-1]["_xid"], rows[-1]["_commit_time"]) == (None, None)


def test_images() -> None:
    moved = OldRow(OldKind.KEY, (b"0", *[None] * 8))
    rows = decode(BEGIN, Update(1, moved, (b"1", UNCHANGED, *ROW[2:3], *[None] * 6)), Delete(1, moved), images=True)
    rest = '"at":null,"on":null,"raw":null,"doc":null,"day":null,"ratio":null'
    assert [(row["_key"], row["_before"], row["_after"]) for row in rows] == [
        ('{"id":1}', '{"id":0}', f'{{"id":1,"price":"1.10",{rest}}}'),
        ('{"id":0}', '{"id":0}', None),
    ]


def test_no_key_is_no_image() -> None:
    (row,) = decode(BEGIN, Insert(1, (b"x",)), relations=(encode_message(table(name="n", v=25)),), images=True)
    assert (row["_key"], row["_before"], row["_after"]) == (None, None, '{"v":"x"}')


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_ordinary_values_do_without_the_reference(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise AssertionError("the reference was asked")

    monkeypatch.setattr(tables.FormTables, "value", fail)
    monkeypatch.setattr(reference.Reference, "encode", fail)
    full = OldRow(OldKind.ROW, ROW)
    rows = decode(BEGIN, Insert(1, ROW), Update(1, full, ROW), Delete(1, full), form=form, images=True)
    assert len(rows) == 3


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_only_the_rare_value_goes_to_the_reference(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    value = tables.FormTables.value

    def listen(self: tables.FormTables, column: int, raw: Any) -> bytes:
        asked.append(raw)
        return value(self, column, raw)

    monkeypatch.setattr(tables.FormTables, "value", listen)
    rare = (*ROW[:3], b"infinity", *ROW[4:7], b"0044-03-15 BC", b"NaN")
    buffer = spooled([BEGIN, Insert(1, ROW), Insert(1, rare)])
    found = fast_rows(fast_batches([buffer], [ITEM], types=TYPES, form=form))
    wanted = reference_rows([buffer], [ITEM], types=TYPES, form=form)
    assert [row["_payload"] for row in found] == [row["_payload"] for row in wanted]
    assert asked == [b"infinity", b"0044-03-15 BC", b"NaN"]


def test_relations_change_within_a_range_and_between_buffers() -> None:
    wide, narrow = table(), table(name="renamed", id=20)
    first: list[Message] = [BEGIN, Insert(1, ROW), narrow, Insert(1, (b"2",)), wide, wide, Insert(1, ROW)]
    second: list[Message] = [Begin(2, 2, 2), Insert(1, ROW), narrow]
    third: list[Message] = [Begin(3, 3, 3), Insert(1, (b"3",))]
    batches = fast_batches([spooled(each) for each in (first, second, third)], [ITEM], types=TYPES)
    assert [row["_table"] for row in fast_rows(batches)] == ["item", "renamed", "item", "item", "renamed"]
    assert [batch.num_rows for batch in batches] == [3, 1, 1]


def test_the_last_description_is_in_force() -> None:
    (row,) = decode(BEGIN, Insert(1, (b"1",)), relations=(ITEM, encode_message(table(name="newer", id=20))))
    assert row["_table"] == "newer"


def test_every_kind_of_buffer(tmp_path: Path) -> None:
    data = spooled([BEGIN, Insert(1, ROW)])
    path = tmp_path / "00000001.seg"
    path.write_bytes(data)
    wanted = fast_rows(fast_batches([data], [ITEM], types=TYPES))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, dtype=np.uint8).copy(), mapped):
            batches = RangeDecoder(origin=SYSTEM, relations=[ITEM], types=TYPES, timeline=TIMELINE).decode([buffer])
            assert fast_rows(batches) == wanted
            del batches, buffer


def test_a_callers_array_stays_writable() -> None:
    array = np.frombuffer(spooled([BEGIN, Insert(1, ROW)]), dtype=np.uint8).copy()
    assert len(list(RangeDecoder(origin=SYSTEM, relations=[ITEM], types=TYPES).decode([array]))) == 1
    array[0] = 0


def test_nothing_gives_nothing() -> None:
    assert fast_batches([], types=TYPES) == []
    assert fast_batches([b"", spooled([BEGIN])], types=TYPES) == []


def test_batches_end_near_their_bytes() -> None:
    buffer = spooled([BEGIN, *(Insert(1, ROW) for _ in range(100))])
    batches = fast_batches([buffer], [ITEM], types=TYPES, batch_bytes=10_000)
    sizes = [batch.column("_payload").get_total_buffer_size() for batch in batches]
    assert len(batches) > 3
    assert max(sizes) < 12_000
    assert sum(batch.num_rows for batch in batches) == 100


def test_batches_of_rare_events_end_near_their_bytes_too() -> None:
    """What the reference writes counts before it is there."""
    note = LogicalMessage(True, 1, "p", b"x" * 1000)
    batches = fast_batches([spooled([BEGIN, *[note] * 20])], types=TYPES, batch_bytes=5_000)
    assert max(batch.num_rows for batch in batches) <= 5


def test_an_event_larger_than_a_batch() -> None:
    long = (b"1", b"\x01" * 50_000, *[None] * 7)
    buffer = spooled([BEGIN, Insert(1, ROW), Insert(1, long), Insert(1, ROW)])
    for form in ("msgpack", "json"):
        rows = fast_rows(fast_batches([buffer], [ITEM], types=TYPES, form=form, batch_bytes=2000))
        wanted = reference_rows([buffer], [ITEM], types=TYPES, form=form)
        assert [row["_payload"] for row in rows] == [row["_payload"] for row in wanted]


def test_more_rare_values_than_a_batch_has_room_for() -> None:
    wide = Relation(
        1, "s", "t", ReplicaIdentity.FULL, tuple(RelationColumn(True, f"c{number}", 1007, -1) for number in range(300))
    )
    buffer = spooled([BEGIN, wide, *[Insert(1, (b"{1}",) * 300)] * 5])
    for rows in (1, 3, 8192):
        found = fast_rows(fast_batches([buffer], types=TYPES, batch_rows=rows, images=True), images=True)
        assert found == reference_rows([buffer], types=TYPES)


def test_events_beyond_the_kernels_limit_are_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that might become larger than Arrow can count is left alone by the kernel."""
    monkeypatch.setattr(gaps, "MOST_EVENT_BYTES", 5000)
    buffer = spooled([BEGIN, Insert(1, ROW), Insert(1, (b"1", b"x" * 5000, *[None] * 7)), Insert(1, ROW)])
    asked: list[int] = []
    encode = reference.Reference.encode

    def listen(self: reference.Reference, event: Any, now_us: int) -> bytes:
        asked.append(1)
        return encode(self, event, now_us)

    monkeypatch.setattr(reference.Reference, "encode", listen)
    found = fast_rows(fast_batches([buffer], [ITEM], types=TYPES, images=True, batch_bytes=4000), images=True)
    assert found == reference_rows([buffer], [ITEM], types=TYPES)
    assert asked == [1]
    asked.clear()
    long = (b"1", b"x" * 5000, *[None] * 7)
    key = OldRow(OldKind.KEY, (b"0", *[None] * 8))
    moved = spooled([BEGIN, Update(1, key, long), Delete(1, OldRow(OldKind.ROW, long))])
    arguments: dict[str, Any] = {"types": TYPES, "form": "debezium"}
    found = fast_rows(fast_batches([moved], [ITEM], images=True, batch_bytes=4000, **arguments), images=True)
    assert found == reference_rows([moved], [ITEM], **arguments)
    assert len(asked) == 3  # the delete and the create of the first, the delete of the second


def test_columns_of_one_name_as_in_the_reference() -> None:
    twice = Relation(
        1, "s", "t", ReplicaIdentity.FULL, (RelationColumn(True, "a", 20, -1), RelationColumn(True, "a", 25, -1))
    )
    buffer = spooled([BEGIN, twice, Insert(1, (b"1", b"x"))])
    for form in ("msgpack", "json"):
        found = fast_rows(fast_batches([buffer], types=TYPES, form=form, images=True), images=True)
        assert found == reference_rows([buffer], types=TYPES, form=form)


def test_a_decoder_is_made_where_it_is_used() -> None:
    """What it is made from travels to the executors."""
    arguments = pickle.loads(pickle.dumps({"origin": SYSTEM, "relations": [ITEM], "types": TYPES}))
    (batch,) = RangeDecoder(**arguments).decode([spooled([BEGIN, Insert(1, ROW)])])
    assert batch.num_rows == 1


def test_compile_ahead_is_enough() -> None:
    formats: tuple[Format, ...] = ("msgpack", "json", "debezium")
    for form in formats:
        compile_ahead(form, images=True)


BROKEN: dict[str, tuple[bytes, str]] = {
    "length past the end": (spooled([BEGIN, Insert(1, ROW)])[:-1], "cut off"),
    "half a length": (spooled([BEGIN]) + b"\1\0", "cut off"),
    "empty message": (spooled([BEGIN]) + b"\0\0\0\0", "cut off"),
    "no Begin": (spooled([Insert(1, ROW)]), "outside any transaction"),
    "Commit": (spooled([BEGIN, Commit(1, 1, 1)]), "no place"),
    "unknown kind": (spooled([BEGIN]) + b"\1\0\0\0?", "no place"),
    "unknown relation": (spooled([BEGIN, Insert(9, ROW)]), "relation 9, which was never described"),
    "truncate of unknown relation": (spooled([BEGIN, Truncate((1, 9), False, False)]), "relation 9"),
    "too few columns": (spooled([BEGIN, Insert(1, ROW[1:])]), "number of columns"),
    "time": (spooled([Begin(1, 2**62, 1)]), "outside the calendar"),
    "message inside": (spooled([BEGIN, LogicalMessage(False, 5, "p", b"")]), "non-transactional"),
    "message without LSN": (spooled([Begin(1, 0, 0), LogicalMessage(False, 0, "p", b"")]), "without an LSN"),
    "change behind a lone message": (
        spooled([Begin(1, 0, 0), LogicalMessage(False, 5, "p", b""), Insert(1, ROW)]), "outside any transaction",
    ),
    "malformed relation": (spooled([BEGIN]) + b"\6\0\0\0R\0\0\0\1x", "malformed Relation"),
    "short relation": (spooled([BEGIN]) + b"\1\0\0\0R", "malformed Relation"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("form", ["msgpack", "json", "debezium"])
def test_broken_ranges(what: str, form: str) -> None:
    data, text = BROKEN[what]
    with pytest.raises(ProtocolError, match=text):
        fast_batches([data], [ITEM], types=TYPES, form=form)


WHOLE: list[Message] = [
    table(),
    Type(20001, "public", "mood"),
    Origin(1, "elsewhere"),
    Insert(1, ROW),
    Update(1, OldRow(OldKind.KEY, ROW), ROW),
    Update(1, None, ROW),
    Delete(1, OldRow(OldKind.ROW, ROW)),
    Truncate((1, 1), True, False),
    LogicalMessage(True, 1, "p", b"x"),
]


@pytest.mark.parametrize("message", WHOLE, ids=lambda message: type(message).__name__)
def test_messages_cut_short_or_too_long(message: Message) -> None:
    payload = encode_message(message)
    begin = encode_message(BEGIN)
    assert len(fast_batches([framed([begin, payload])], [ITEM], types=TYPES)) <= 1
    for wrong in (payload + b"\0", *(payload[:size] for size in range(1, len(payload)))):
        with pytest.raises(ProtocolError):
            fast_batches([framed([begin, wrong])], [ITEM], types=TYPES)


def test_begin_cut_short_or_too_long() -> None:
    begin = encode_message(BEGIN)
    for wrong in (begin + b"\0", *(begin[:size] for size in range(1, len(begin)))):
        with pytest.raises(ProtocolError):
            fast_batches([framed([wrong])], types=TYPES)


def test_a_bad_value_names_its_column() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(BEGIN, Insert(1, (b"one", *ROW[1:])))
    assert caught.value.where == "public.item.id"
    assert "one" not in str(caught.value)
    with pytest.raises(DataError, match="binary"):
        decode(BEGIN, Insert(1, (BinaryValue(b"\0\0\0\0\0\0\0\1"), *ROW[1:])))


def test_binary_values_are_not_taken_for_text_that_was_seen_before() -> None:
    rare = (*ROW[:3], b"infinity", *ROW[4:])
    with pytest.raises(DataError, match="binary"):
        decode(BEGIN, Insert(1, rare), Insert(1, (*ROW[:3], BinaryValue(b"infinity"), *ROW[4:])))


def test_batches_without_room() -> None:
    with pytest.raises(UsageError):
        fast_batches([], types=TYPES, batch_rows=0)
    with pytest.raises(UsageError):
        fast_batches([], types=TYPES, batch_bytes=0)


def test_relations_that_are_none() -> None:
    for wrong in (b"", b"R", encode_message(BEGIN)):
        with pytest.raises(ProtocolError, match="not a Relation"):
            RangeDecoder(origin=SYSTEM, relations=[wrong], types=TYPES)


def test_a_batch_beyond_arrows_offsets_is_refused() -> None:
    with pytest.raises(DataError, match="more than Arrow can address"):
        columns.bytes_column(pa.binary(), b"", np.array([2**31], dtype=np.int64))
