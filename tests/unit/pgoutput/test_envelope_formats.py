"""The bytes of events: every field, every operation, three formats."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headgate.model import DataError, Position, ProtocolError
from headgate.wire.envelope import (
    TABLE_SUBJECT,
    DebeziumEncoder,
    DebeziumOptions,
    Event,
    JsonEncoder,
    MessagePackEncoder,
    Operation,
    events,
    iso_time,
    message_id,
    subject_of,
    subject_token,
)
from headgate.wire.pgoutput import (
    UNCHANGED,
    BinaryValue,
    Body,
    Change,
    Delete,
    Insert,
    LogicalMessage,
    OldKind,
    OldRow,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Transaction,
    Truncate,
    Update,
)
from headgate.wire.pgtypes import TypeCatalog

SYSTEM = 7412345678901234567
COLUMNS = (
    RelationColumn(True, "id", 20, -1),
    RelationColumn(False, "name", 25, -1),
    RelationColumn(False, "doc", 3802, -1),
    RelationColumn(False, "raw", 17, -1),
)
TABLE = Relation(16392, "public", "users", ReplicaIdentity.DEFAULT, COLUMNS)
ROW = (b"12", "é\n".encode(), b'{"a": 1.0}', b"\\x00ff")
VERSION = "527df91281c650a7"  # written into streams that are kept, so it must never come out differently
NOW_US = 1_765_540_900_000_001
TIME = 818_856_034_338_547  # 2025-12-12T12:00:34.338547Z


def event_of(body: Body, relation: Relation | None = TABLE) -> Event:
    transaction = Transaction(0x16B374D848, 0x16B374D900, TIME, 731, (Change(3, 0x16B374D000, relation, body),))
    (event,) = events(transaction)
    return event


def unpacked(event: Event) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.msgpack.decode(MessagePackEncoder(SYSTEM, TypeCatalog()).encode(event))
    return decoded


def parsed(event: Event) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(JsonEncoder(SYSTEM, TypeCatalog()).encode(event))
    return decoded


def debezium(event: Event) -> dict[str, Any]:
    encoder = DebeziumEncoder(TypeCatalog(), DebeziumOptions(topic_prefix="srv"), database="shop")
    decoded: dict[str, Any] = json.loads(encoder.encode(event, NOW_US))
    return decoded


HEAD = {
    "schema": "public",
    "table": "users",
    "operation": "INSERT",
    "relation_id": 16392,
    "schema_version": VERSION,
    "subject": "cdc.public.users.insert",
    "commit_lsn": "16/B374D848",
    "commit_time": "2025-12-12T12:00:34.338547Z",
    "xid": 731,
    "event_count": 1,
    "lsn": "16/B374D000",
    "ordinal": 3,
    "msg_id": "7412345678901234567-00000016B374D848-00000003",
}


def test_insert_has_every_field_in_order() -> None:
    event = event_of(Insert(16392, ROW))
    packed, text = unpacked(event), parsed(event)
    assert packed == HEAD | {"data": {"id": 12, "name": "é\n", "doc": '{"a": 1.0}', "raw": b"\x00\xff"}}
    assert text == HEAD | {"data": {"id": 12, "name": "é\n", "doc": {"a": 1.0}, "raw": "AP8="}}
    assert list(packed) == list(text) == [*HEAD, "data"]


def test_json_bytes() -> None:
    assert JsonEncoder(SYSTEM, TypeCatalog()).encode(event_of(Insert(16392, ROW))).decode() == (
        '{"schema":"public","table":"users","operation":"INSERT","relation_id":16392,'
        f'"schema_version":"{VERSION}",'
        '"subject":"cdc.public.users.insert","commit_lsn":"16/B374D848",'
        '"commit_time":"2025-12-12T12:00:34.338547Z","xid":731,"event_count":1,"lsn":"16/B374D000","ordinal":3,'
        '"msg_id":"7412345678901234567-00000016B374D848-00000003",'
        '"data":{"id":12,"name":"é\\n","doc": {"a": 1.0},"raw":"AP8="}}'
    )


def test_msgpack_bytes() -> None:
    data = MessagePackEncoder(SYSTEM, TypeCatalog()).encode(event_of(Insert(16392, ROW)))
    assert data[:1] == b"\x8e"
    assert data.startswith(
        b"\x8e\xa6schema\xa6public\xa5table\xa5users\xa9operation\xa6INSERT\xabrelation_id\xcd\x40\x08"
    )
    assert data.endswith(
        b"\xa4data\x84\xa2id\x0c\xa4name\xa3\xc3\xa9\n\xa3doc\xaa" + b'{"a": 1.0}' + b"\xa3raw\xc4\x02\x00\xff"
    )
    updated = event_of(Update(16392, OldRow(OldKind.KEY, (b"11", None, None, None)), ROW))
    assert MessagePackEncoder(SYSTEM, TypeCatalog()).encode(updated)[:1] == b"\x8f"


def test_update_leaves_out_what_was_not_sent() -> None:
    event = event_of(Update(16392, None, (b"12", None, UNCHANGED, UNCHANGED)))
    for decoded in (unpacked(event), parsed(event)):
        assert decoded["data"] == {"id": 12, "name": None}
        assert "old" not in decoded
        assert decoded["operation"] == "UPDATE"


def test_old_key_has_only_the_key() -> None:
    event = event_of(Update(16392, OldRow(OldKind.KEY, (b"11", None, None, None)), ROW))
    assert unpacked(event)["old"] == parsed(event)["old"] == {"id": 11}
    assert list(unpacked(event))[-2:] == ["data", "old"]


def test_old_row_is_whole() -> None:
    event = event_of(Update(16392, OldRow(OldKind.ROW, (b"11", None, b"1", b"\\x")), ROW))
    assert unpacked(event)["old"] == {"id": 11, "name": None, "doc": "1", "raw": b""}


@pytest.mark.parametrize(
    ("old", "data"),
    [
        (OldRow(OldKind.KEY, (b"12", None, None, None)), {"id": 12}),
        (OldRow(OldKind.ROW, (b"12", None, None, None)), {"id": 12, "name": None, "doc": None, "raw": None}),
    ],
)
def test_delete_says_which_row(old: OldRow, data: dict[str, Any]) -> None:
    event = event_of(Delete(16392, old))
    for decoded in (unpacked(event), parsed(event)):
        assert decoded["data"] == data
        assert "old" not in decoded
        assert decoded["subject"] == "cdc.public.users.delete"
    whole = {"id": 12, "name": None, "doc": None, "raw": None}
    assert (debezium(event)["before"], debezium(event)["after"]) == (whole, None)


def test_truncate() -> None:
    event = event_of(Truncate((16392,), True, False))
    assert unpacked(event)["data"] == parsed(event)["data"] == {"cascade": True, "restart_identity": False}
    assert debezium(event)["op"] == "t"


def test_message() -> None:
    event = event_of(LogicalMessage(True, 5, "wm.low", b"\x00\xff"), None)
    packed, text = unpacked(event), parsed(event)
    assert packed["data"] == {"prefix": "wm.low", "content": b"\x00\xff", "transactional": True}
    assert text["data"] == {"prefix": "wm.low", "content": "AP8=", "transactional": True}
    assert packed["subject"] == "cdc.message.wm%2Elow.message"
    assert (packed["schema"], packed["table"], packed["relation_id"]) == (None, None, None)
    shaped = debezium(event)
    assert (shaped["op"], shaped["message"]) == ("m", {"prefix": "wm.low", "content": "AP8="})


def test_read_without_transaction() -> None:
    event = Event(Operation.READ, Position(7, 9), 7, None, None, TABLE, data=ROW)
    packed = unpacked(event)
    assert (packed["operation"], packed["commit_time"], packed["xid"]) == ("READ", None, None)
    assert packed["subject"] == "cdc.public.users.read"
    shaped = debezium(event)
    assert (shaped["op"], shaped["source"]["snapshot"], shaped["source"]["ts_ms"]) == ("r", "true", shaped["ts_ms"])


def test_debezium_update() -> None:
    shaped = debezium(event_of(Update(16392, None, (b"12", None, UNCHANGED, UNCHANGED))))
    assert list(shaped) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert shaped["before"] is None
    assert shaped["after"] == {
        "id": 12,
        "name": None,
        "doc": "__debezium_unavailable_value",
        "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    }
    assert (shaped["ts_ms"], shaped["ts_us"], shaped["ts_ns"]) == (NOW_US // 1000, NOW_US, NOW_US * 1000)
    assert shaped["source"]["ts_us"] == 1_765_540_834_338_547
    assert shaped["source"]["lsn"] == 0x16B374D000
    assert shaped["source"]["sequence"] == f'["{0x16B374D848}","{0x16B374D000}"]'
    assert (shaped["source"]["name"], shaped["source"]["db"]) == ("srv", "shop")


def test_a_new_shape_is_noticed() -> None:
    encoder = MessagePackEncoder(SYSTEM, TypeCatalog())
    one = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, (RelationColumn(True, "v", 25, -1),))
    two = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, (RelationColumn(True, "v", 23, -1),))
    seen = [
        msgspec.msgpack.decode(encoder.encode(event_of(Insert(1, (b"7",)), relation)))["data"]
        for relation in (one, two, one)
    ]
    assert seen == [{"v": "7"}, {"v": 7}, {"v": "7"}]


def test_wide_rows() -> None:
    columns = tuple(RelationColumn(False, f"c{number}", 25, -1) for number in range(1600))
    relation = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, columns)
    event = event_of(Insert(1, (b"x",) * 1600), relation)
    assert len(unpacked(event)["data"]) == 1600
    assert b"\xa4data\xde\x06\x40" in MessagePackEncoder(SYSTEM, TypeCatalog()).encode(event)


def test_table_without_columns() -> None:
    event = event_of(Insert(1, ()), Relation(1, "s", "t", ReplicaIdentity.NOTHING, ()))
    assert unpacked(event)["data"] == parsed(event)["data"] == {}


@pytest.mark.parametrize(
    ("value", "error"), [(b"\xff", ProtocolError), (b"x", ProtocolError), (BinaryValue(b"\0\0\0\1"), DataError)]
)
def test_bad_columns_are_named(value: bytes, error: type[Exception]) -> None:
    event = event_of(Insert(16392, (value, None, None, None)))
    for encoder in (MessagePackEncoder(SYSTEM, TypeCatalog()), JsonEncoder(SYSTEM, TypeCatalog())):
        with pytest.raises(error, match=r"^public\.users\.id: "):
            encoder.encode(event)


def test_subjects() -> None:
    odd = Relation(1, "a.b", "c d*>%é\u00a0", ReplicaIdentity.DEFAULT, ())
    event = event_of(Insert(1, ()), odd)
    assert subject_of(event) == "cdc.a%2Eb.c%20d%2A%3E%25é%C2%A0.insert"
    assert subject_of(event, TABLE_SUBJECT) == "cdc.c%20d%2A%3E%25é%C2%A0.insert"
    assert subject_of(event_of(Insert(1, ()), TABLE), "{op}.{table}.{other}") == "insert.users.{other}"
    assert subject_token("") == "%"


def test_given_subject() -> None:
    encoder = JsonEncoder(SYSTEM, TypeCatalog(), subject=lambda event: f"x.{event.operation}")
    assert json.loads(encoder.encode(event_of(Insert(16392, ROW))))["subject"] == "x.INSERT"


def test_message_ids_sort_as_positions() -> None:
    positions = [Position(1, 0), Position(1, 15), Position(2, 0), Position(2**64 - 1, 2**32 - 1)]
    ids = [message_id(SYSTEM, position) for position in positions]
    assert ids == sorted(ids)


def test_times() -> None:
    assert iso_time(0) == "2000-01-01T00:00:00.000000Z"
    assert iso_time(-63_082_281_600_000_000) == "0001-01-01T00:00:00.000000Z"
    for extreme in (2**63 - 1, -(2**63)):
        with pytest.raises(ProtocolError, match="calendar"):
            iso_time(extreme)
