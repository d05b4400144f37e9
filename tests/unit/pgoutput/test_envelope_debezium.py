"""Debezium's envelope: values as Debezium 3.3 wrote them for the same rows, and which events a change becomes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headgate.model import Position, ProtocolError
from headgate.wire.envelope import DebeziumEncoder, DebeziumOptions, Event, Operation
from headgate.wire.pgoutput import UNCHANGED, Relation, RelationColumn, ReplicaIdentity, Row
from headgate.wire.pgtypes import TypeCatalog, TypeInfo, TypeKind

MOOD, HSTORE = 20005, 20003
TYPES = TypeCatalog([TypeInfo(MOOD, "mood", TypeKind.ENUM), TypeInfo(HSTORE, "hstore")])
NOW_US = 1_765_540_900_000_001


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def table(*columns: tuple[str, int, int], identity: ReplicaIdentity = ReplicaIdentity.DEFAULT) -> Relation:
    shown = tuple(RelationColumn(name == "id", name, oid, typmod) for name, oid, typmod in columns)
    return Relation(7, "d", "t", identity, shown)


def written(oid: int, typmod: int, text: str | None, **options: Any) -> Any:
    """One value as JSON has it."""
    row = None if text is None else text.encode()
    event = Event(Operation.INSERT, Position(1), 1, 0, 1, table(("v", oid, typmod)), data=(row,))
    payload = DebeziumEncoder(TYPES, DebeziumOptions(**options)).encode(event, NOW_US)
    return json.loads(payload)["after"]["v"]


ADAPTIVE = [
    (21, -1, "2", 2),
    (20, -1, "9007199254740993", 9007199254740993),
    (26, -1, "42", 42),
    (700, -1, "NaN", "NaN"),
    (701, -1, "-Infinity", "-Infinity"),
    (701, -1, "1e+300", 1e300),
    (1700, -1, "123.4500", {"scale": 2, "value": "MDk="}),
    (1700, -1, "100", {"scale": 0, "value": "ZA=="}),
    (1700, -1, "0.10", {"scale": 1, "value": "AQ=="}),
    (1700, -1, "0.00", {"scale": 0, "value": "AA=="}),
    (1700, -1, "-99999999999999999999.5", {"scale": 1, "value": "yco2UjohYAAF"}),
    (1700, -1, "NaN", None),
    (1700, numeric(10, 2), "12.30", "BM4="),
    (1700, numeric(10, 2), "-0.01", "/w=="),
    (1700, numeric(10, 2), "-128.00", "zgA="),
    (1700, numeric(5, 0), "-300", "/tQ="),
    (1700, numeric(30, 10), "12345678901234567890.0123456789", "AY7pD/bDc+DuDATVFQ=="),
    (790, -1, "$1,234.50", "AeI6"),
    (790, -1, "-$0.05", "+w=="),
    (16, -1, "t", True),
    (17, -1, "\\xdeadbeef", "3q2+7w=="),
    (1042, 9, "ab   ", "ab   "),
    (1082, -1, "2024-02-29", 19782),
    (1082, -1, "infinity", -2147472692),
    (1082, -1, "-infinity", -2147472691),
    (1082, -1, "0044-03-15 BC", -735160),
    (1082, -1, "12024-03-15", 3672222),
    (1083, -1, "12:34:56.789012", 45296789012),
    (1083, -1, "24:00:00", 86400000000),
    (1083, 3, "12:34:56.789", 45296789),
    (1083, 1, "12:00:00.5", 43200500),
    (1266, -1, "12:34:56.789012+02", "10:34:56.789012Z"),
    (1266, -1, "24:00:00+00", "00:00:00Z"),
    (1266, -1, "00:00:00.1-05:30", "05:30:00.1Z"),
    (1114, -1, "2024-02-29 12:34:56.789012", 1709210096789012),
    (1114, 3, "2024-02-29 12:34:56.789", 1709210096789),
    (1114, 0, "2024-02-29 12:34:56", 1709210096000),
    (1114, 5, "2024-01-01 00:00:00.12345", 1704067200123450),
    (1114, -1, "infinity", 9223372036825200000),
    (1114, -1, "-infinity", -9223372036832400000),
    (1114, -1, "0044-03-15 12:00:00 BC", -63517780800000000),
    (1114, -1, "12024-03-15 12:00:00", 317280024000000000),
    (1184, -1, "2024-02-29 10:34:56.789012+00", "2024-02-29T10:34:56.789012Z"),
    (1184, -1, "1969-12-31 23:59:59.5+00", "1969-12-31T23:59:59.500000Z"),
    (1184, 0, "2024-01-01 00:00:01+00", "2024-01-01T00:00:01Z"),
    (1184, 3, "2024-01-01 00:00:00.5+00", "2024-01-01T00:00:00.500Z"),
    (1184, -1, "infinity", "infinity"),
    (1184, -1, "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"),
    (1184, 0, "294276-12-31 23:59:59+00", "+294276-12-31T23:59:59Z"),
    (1184, -1, "2024-01-01 01:30:00+01:30", "2024-01-01T00:00:00.000000Z"),
    (1186, -1, "P1Y2M3DT4H5M6.789S", 37091106789000),
    (1186, -1, "P-1M-3DT-4H-5M-6.789S", -2903706789000),
    (1186, -1, "P-1DT2H", -79200000000),
    (1186, -1, "PT0S", 0),
    (2950, -1, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    (3802, -1, '{"a": 1, "b": [1, 2]}', '{"a": 1, "b": [1, 2]}'),
    (1560, 1, "1", True),
    (1560, 5, "10101", "FQ=="),
    (1562, -1, "101", "BQ=="),
    (1562, 5, "10101", "FQ=="),
    (869, -1, "10.0.0.1/24", "10.0.0.1/24"),
    (3904, -1, "[1,5)", "[1,5)"),
    (600, -1, "(1,2)", {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}),
    (MOOD, -1, "ok", "ok"),
    (HSTORE, -1, '"a"=>"1", "b"=>NULL', '{"a":"1","b":null}'),
    (1007, -1, "{1,NULL,3}", [1, None, 3]),
    (1009, -1, '{a,NULL,"b c"}', ["a", None, "b c"]),
    (1231, numeric(10, 2), "{1.10,2.20}", ["bg==", "ANw="]),
    (1115, -1, '{"2024-02-29 12:34:56.789012"}', [1709210096789012]),
    (1185, -1, '{"2024-02-29 12:34:56.789012+00"}', ["2024-02-29T12:34:56.789012Z"]),
    (1182, -1, "{2024-02-29}", [19782]),
    (3807, -1, '{"{\\"a\\": 1}"}', ['{"a": 1}']),
    (1000, -1, "{t,f}", [True, False]),
    (1022, -1, "{1.5,NaN}", [1.5, "NaN"]),
    (1183, -1, "{12:00:00}", [43200000000]),
    (25, -1, None, None),
]


@pytest.mark.parametrize(("oid", "typmod", "text", "value"), ADAPTIVE)
def test_values_by_default(oid: int, typmod: int, text: str | None, value: Any) -> None:
    assert written(oid, typmod, text) == value


def test_a_number_of_any_length_is_exact() -> None:
    """PostgreSQL's go to 131,072 digits before the point; Python's own parser stops at 4,300."""
    digits = "7" * 20_000
    found = written(1700, -1, f"-{digits}.50")
    assert found["scale"] == 1
    value = int.from_bytes(base64.b64decode(found["value"]), "big", signed=True)
    assert value == -(_repeated(7, 20_000) * 10 + 5)


def _repeated(digit: int, times: int) -> int:
    return digit * (int(10**times) - 1) // 9


MODES = [
    ({"time_precision_mode": "isostring"}, 1082, "2024-02-29", "2024-02-29Z"),
    ({"time_precision_mode": "isostring"}, 1082, "12024-03-15", "+12024-03-15Z"),
    ({"time_precision_mode": "isostring"}, 1083, "12:34:56.789012", "12:34:56.789012Z"),
    ({"time_precision_mode": "isostring"}, 1114, "2024-02-29 12:34:56.789", "2024-02-29T12:34:56.789Z"),
    ({"time_precision_mode": "connect"}, 1082, "2024-02-29", 19782),
    ({"time_precision_mode": "connect"}, 1083, "12:34:56.789012", 45296789),
    ({"time_precision_mode": "connect"}, 1114, "2024-02-29 12:34:56.789012", 1709210096789),
    ({"decimal_handling_mode": "string"}, 1700, "123.4500", "123.4500"),
    ({"decimal_handling_mode": "double"}, 1700, "123.4500", 123.45),
    ({"decimal_handling_mode": "double"}, 1700, "-" + "9" * 400, "-Infinity"),
    ({"decimal_handling_mode": "double"}, 1700, "Infinity", "Infinity"),
    ({"decimal_handling_mode": "double"}, 790, "$1,234.50", 1234.5),
    ({"interval_handling_mode": "string"}, 1186, "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S"),
    ({"interval_handling_mode": "string"}, 1186, "P-1DT2H", "P0Y0M-1DT2H0M0S"),
    ({"interval_handling_mode": "string"}, 1186, "PT0.000001S", "P0Y0M0DT0H0M0.000001S"),
    ({"binary_handling_mode": "hex"}, 17, "\\xdeadbeef", "deadbeef"),
    ({"binary_handling_mode": "base64-url-safe"}, 17, "\\xdeadbeef", "3q2-7w=="),
    ({"hstore_handling_mode": "map"}, HSTORE, '"a"=>"1", "b"=>NULL', {"a": "1", "b": None}),
]


@pytest.mark.parametrize(("options", "oid", "text", "value"), MODES)
def test_values_by_mode(options: dict[str, Any], oid: int, text: str, value: Any) -> None:
    assert written(oid, -1, text, **options) == value


@pytest.mark.parametrize(
    ("oid", "text"),
    [(1082, "tomorrow"), (1114, "2024-02-29"), (1184, "x"), (1083, "1"), (1186, "1 day"), (600, "(x,y)"), (1560, "2")],
)
def test_what_the_type_cannot_be_is_refused(oid: int, text: str) -> None:
    with pytest.raises(ProtocolError):
        written(oid, 5, text)


ITEM = table(("id", 20, -1), ("note", 25, -1), ("n", 23, -1))


def update(old: Row | None, new: Row, relation: Relation = ITEM) -> Event:
    return Event(Operation.UPDATE, Position(9, 3), 9, 0, 1, relation, data=new, old=old)


def shown(event: Event, encoder: DebeziumEncoder) -> list[tuple[str, int, Any, Any]]:
    """Operation, part, old and new row of each message."""
    found = []
    for part in encoder.split(event):
        decoded = json.loads(encoder.encode(part.event, NOW_US))
        found.append((decoded["op"], part.number, decoded["before"], decoded["after"]))
    return found


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create() -> None:
    event = update((b"1", UNCHANGED, UNCHANGED), (b"2", b"x", b"5"))
    before, after = {"id": 1, "note": None, "n": None}, {"id": 2, "note": "x", "n": 5}
    encoder = DebeziumEncoder(TYPES)
    assert shown(event, encoder) == [("d", 0, before, None), ("d", 1, before, None), ("c", 2, None, after)]
    without = DebeziumEncoder(TYPES, DebeziumOptions(tombstones_on_delete=False))
    assert shown(event, without) == [("d", 0, before, None), ("c", 2, None, after)]


def test_an_update_that_keeps_its_key_is_one_event() -> None:
    full = table(("id", 20, -1), ("note", 25, -1), ("n", 23, -1), identity=ReplicaIdentity.FULL)
    encoder = DebeziumEncoder(TYPES, described=lambda relation: {"primary_key": ["id"], "columns": []})
    ((op, part, before, after),) = shown(update((b"1", b"old", None), (b"1", UNCHANGED, b"5"), full), encoder)
    assert (op, part, before) == ("u", 0, {"id": 1, "note": "old", "n": None})
    assert after == {"id": 1, "note": "old", "n": 5}  # the old row has what was left out of line
    assert [each[0] for each in shown(update((b"1", b"a", None), (b"2", b"a", None), full), encoder)] == ["d", "d", "c"]
    keyless = DebeziumEncoder(TYPES)  # nobody says what the key is
    assert [each[0] for each in shown(update((b"1", b"a", None), (b"2", b"a", None), full), keyless)] == ["u"]


def test_an_old_row_has_every_column_with_defaults_where_null_is_no_value() -> None:
    columns = [
        {"name": "note", "nullable": False, "default": "'deft'::text"},
        {"name": "n", "nullable": False, "default": "now()"},
    ]
    encoder = DebeziumEncoder(TYPES, described=lambda relation: {"primary_key": ["id"], "columns": columns})
    event = Event(Operation.DELETE, Position(9), 9, 0, 1, ITEM, data=(b"1", UNCHANGED, UNCHANGED))
    assert shown(event, encoder)[0] == ("d", 0, {"id": 1, "note": "deft", "n": 0}, None)


@pytest.mark.parametrize(
    ("base", "base_type", "text", "value"),
    [
        (1700, "numeric(10,2)", "1.50", "AJY="),
        (1700, "numeric", "1.50", {"scale": 1, "value": "Dw=="}),
        (1083, "time(3) without time zone", "12:00:00.5", 43200500),
        (1114, "timestamp(3) without time zone", "2024-01-01 00:00:00", 1704067200000),
        (1560, "bit(5)", "10101", "FQ=="),
    ],
)
def test_a_domain_has_the_precision_of_its_own_type(base: int, base_type: str, text: str, value: Any) -> None:
    types = TypeCatalog([TypeInfo(20010, "price", TypeKind.DOMAIN, base=base)])
    described = {"columns": [{"name": "v", "base_type": base_type}]}
    encoder = DebeziumEncoder(types, described=lambda relation: described)
    event = Event(Operation.INSERT, Position(1), 1, 0, 1, table(("v", 20010, -1)), data=(text.encode(),))
    assert json.loads(encoder.encode(event, NOW_US))["after"]["v"] == value


def test_truncate_is_skipped_unless_wanted() -> None:
    event = Event(Operation.TRUNCATE, Position(9), 9, 0, 1, ITEM, detail={"cascade": False, "restart_identity": False})
    assert shown(event, DebeziumEncoder(TYPES)) == []
    wanted = DebeziumEncoder(TYPES, DebeziumOptions(skipped_operations=("none",)))
    assert shown(event, wanted) == [("t", 0, None, None)]


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (25, "__debezium_unavailable_value"),
        (3802, "__debezium_unavailable_value"),
        (17, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
        (1700, None),
        (1009, ["__debezium_unavailable_value"]),
        (1007, list(b"__debezium_unavailable_value")),
        (2951, ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    ],
)
def test_a_value_left_out_of_line_has_debeziums_placeholder(oid: int, value: Any) -> None:
    event = Event(Operation.UPDATE, Position(1), 1, 0, 1, table(("id", 20, -1), ("v", oid, -1)), (b"1", UNCHANGED))
    assert json.loads(DebeziumEncoder(TYPES).encode(event, NOW_US))["after"]["v"] == value


def test_schemas_are_kafka_connects() -> None:
    columns = [{"name": "note", "nullable": False, "default": "'deft'::text"}]
    encoder = DebeziumEncoder(
        TYPES,
        DebeziumOptions(topic_prefix="shop", schemas_enable=True),
        database="db",
        described=lambda relation: {"primary_key": ["id"], "columns": columns},
    )
    relation = table(("id", 20, -1), ("note", 25, -1), ("price", 1700, numeric(10, 2)), ("at", 1184, -1))
    event = Event(Operation.INSERT, Position(1), 1, 0, 1, relation, (b"1", b"x", b"1.50", None))
    decoded = json.loads(encoder.encode(event, NOW_US))
    assert list(decoded) == ["schema", "payload"]
    assert decoded["payload"]["after"] == {"id": 1, "note": "x", "price": "AJY=", "at": None}
    schema = decoded["schema"]
    assert (schema["name"], schema["version"]) == ("shop.d.t.Envelope", 2)
    assert [field["field"] for field in schema["fields"]] == list(decoded["payload"])
    after = schema["fields"][1]
    assert (after["name"], after["optional"], after["field"]) == ("shop.d.t.Value", True, "after")
    assert after["fields"] == [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": False, "default": "deft", "field": "note"},
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "field": "price",
        },
        {
            "type": "string",
            "optional": True,
            "name": "io.debezium.time.ZonedTimestamp",
            "version": 1,
            "field": "at",
        },
    ]
    source = next(field for field in schema["fields"] if field["field"] == "source")
    assert [field["field"] for field in source["fields"]] == list(decoded["payload"]["source"])
