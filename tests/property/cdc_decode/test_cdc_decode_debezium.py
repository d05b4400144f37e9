"""The compiled writer of Debezium's events gives the bytes of its encoder, under every option."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import DataError, ProtocolError
from headgate.wire.envelope import DebeziumEncoder, DebeziumOptions, framed, json_schema
from headgate.wire.envelope.debezium.options import BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode
from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    Column,
    Delete,
    Insert,
    Message,
    OldKind,
    OldRow,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Row,
    Truncate,
    Update,
    encode_message,
)
from headgate.wire.pgtypes import TypeCatalog
from tests.property.cdc_decode.decode_strategies import CATALOG, GOOD, HSTORE, ODD, clocks, days, encoded, fractions
from tests.property.cdc_decode.spooled import fast_batches, fast_rows, reference_rows, spooled

NUMERIC, MONEY, BIT, VARBIT, POINT, INTERVAL, TIME, TIMESTAMP, TIMESTAMPTZ = (
    1700,
    790,
    1560,
    1562,
    600,
    1186,
    1083,
    1114,
    1184,
)
NUMERICS = 1231
LARGE = {17, 25, 114, 1043, NUMERIC, NUMERICS, 3802, HSTORE}  # may lie out of line


def numeric_typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def decimal_text(scale: int) -> st.SearchStrategy[bytes]:
    whole = st.integers(-(10**20), 10**20) | st.integers(-300, 300)
    fraction = st.text("0123456789", min_size=scale, max_size=scale)
    if scale <= 0:
        return whole.map(lambda number: b"%d" % (number * 10**-scale))
    return st.builds(lambda number, digits: f"{number}.{digits}".encode(), whole, fraction)


@dataclass(frozen=True)
class Kind:
    """A type with its modifier, and values that a server may send for it."""

    oid: int
    typmod: int
    values: st.SearchStrategy[bytes]


NOT_NUMBERS = st.sampled_from([b"NaN", b"Infinity", b"-Infinity"])
KINDS = [
    *(Kind(oid, -1, values) for oid, values in GOOD.items() if oid not in (NUMERIC, TIME)),
    *(Kind(NUMERIC, numeric_typmod(20, scale), decimal_text(scale) | NOT_NUMBERS) for scale in (0, 1, 2, 10, -2)),
    Kind(NUMERIC, -1, st.integers(0, 20).flatmap(decimal_text) | NOT_NUMBERS | st.just(b"100.00")),
    Kind(NUMERICS, numeric_typmod(10, 2), st.sampled_from([b"{}", b"{1.10,NULL,NaN}", b"{{1.00},{2.00}}"])),
    Kind(MONEY, -1, st.sampled_from([b"$1,234.50", b"-$0.05", "1.234,50 €".encode(), b"5"])),
    *(Kind(BIT, length, st.sampled_from([b"1" * length, b"0" * length])) for length in (1, 5, 16)),
    Kind(VARBIT, -1, st.sampled_from([b"", b"101", b"0" * 9])),
    Kind(POINT, -1, st.sampled_from([b"(1,2)", b"(-1.5e+20,Infinity)", b"(0,NaN)"])),
    Kind(INTERVAL, -1, st.sampled_from([b"P1Y2M3DT4H5M6.789S", b"PT0S", b"P-1DT2H", b"PT-0.5S", b"P-1M-3DT-4H"])),
    *(
        Kind(TIME, typmod, encoded(st.builds("{}{}".format, clocks, fractions)) | st.just(b"24:00:00"))
        for typmod in (-1, 0, 3, 6)
    ),
    *(
        Kind(TIMESTAMP, typmod, encoded(st.builds("{} {}{}".format, days, clocks, fractions)) | st.just(b"infinity"))
        for typmod in (0, 3, 6)
    ),
    *(
        Kind(TIMESTAMPTZ, typmod, encoded(st.builds("{} {}{}+00".format, days, clocks, fractions)))
        for typmod in (0, 3, 6)
    ),
    Kind(HSTORE, -1, st.sampled_from([b"", b'"a"=>"1", "b"=>NULL', b'"q\\"\\\\"=>"\n"'])),
]
DEFAULTS = (
    "'a''b'::text",
    "7",
    "(-5)",
    "'-5'::integer",
    "true",
    "now()",
    "nextval('s'::regclass)",
    "'2024-01-01'::date",
)

options = st.builds(
    DebeziumOptions,
    topic_prefix=st.sampled_from(["shop", 'a "b"']),
    time_precision_mode=st.sampled_from(get_args(TimeMode)),
    decimal_handling_mode=st.sampled_from(get_args(DecimalMode)),
    interval_handling_mode=st.sampled_from(get_args(IntervalMode)),
    binary_handling_mode=st.sampled_from(get_args(BinaryMode)),
    hstore_handling_mode=st.sampled_from(get_args(HstoreMode)),
    tombstones_on_delete=st.booleans(),
    skipped_operations=st.sampled_from([("t",), (), ("u", "t"), ("c",), ("d",)]),
    schemas_enable=st.booleans(),
    message_keys=st.booleans(),
    unwrap=st.booleans(),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Relation, list[Kind], dict[str, Any]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=8))
    columns = [
        RelationColumn(draw(st.booleans()), f'c{number} "é"', kind.oid, kind.typmod)
        for number, kind in enumerate(kinds)
    ]
    relation = Relation(7, "s", "t", draw(st.sampled_from(ReplicaIdentity)), tuple(columns))
    described = [
        {
            "name": column.name,
            "nullable": draw(st.booleans()),
            "default": draw(st.none() | st.sampled_from(DEFAULTS)),
            "labels": draw(st.none() | st.just(["sad", "ok"])),
        }
        for column in columns
    ]
    primary = [column.name for column in columns if draw(st.booleans())]
    return relation, kinds, {"columns": described, "primary_key": primary}


def rows(kinds: list[Kind], *, odd: bool, nulls: bool = True) -> st.SearchStrategy[Row]:
    """Without `nulls`, only large values are left out."""

    def cell(kind: Kind) -> st.SearchStrategy[Column]:
        null: st.SearchStrategy[Column] = st.none() if nulls else st.nothing()
        absent = st.just(UNCHANGED) if nulls or kind.oid in LARGE else st.nothing()
        good = null | absent | kind.values | kind.values
        return good | ODD if odd else good

    return st.tuples(*map(cell, kinds))


@st.composite
def updates(draw: st.DrawFn, row: st.SearchStrategy[Row]) -> Update:
    """Old and new row often have the same key."""
    new, other = draw(row), draw(row)
    old = tuple(mine if draw(st.booleans()) else theirs for mine, theirs in zip(new, other, strict=True))
    return Update(7, draw(st.none() | st.builds(OldRow, st.sampled_from(OldKind), st.just(old))), new)


@st.composite
def buffers(draw: st.DrawFn, kinds: list[Kind], *, odd: bool, nulls: bool = True) -> bytes:
    row = rows(kinds, odd=odd, nulls=nulls)
    change: st.SearchStrategy[Message] = st.one_of(
        st.builds(Insert, st.just(7), row),
        updates(row),
        st.builds(Delete, st.just(7), st.builds(OldRow, st.sampled_from(OldKind), row)),
        st.just(Truncate((7,), False, False)),
    )
    begin = Begin(draw(st.integers(0, 2**64 - 1)), draw(st.sampled_from([0, -1, 818_856_034_338_547])), 9)
    return spooled([begin, *draw(st.lists(change, max_size=6))])


def encoder_maker(
    chosen: DebeziumOptions, described: Mapping[str, Any] | None
) -> Callable[[TypeCatalog], DebeziumEncoder]:
    return lambda types: DebeziumEncoder(types, chosen, database="db", described=lambda relation: described)


@given(data=st.data(), table=tables(), chosen=options, batch_rows=st.sampled_from([1, 2, 8192]))
def test_events_are_those_of_the_encoder(
    data: st.DataObject, table: tuple[Relation, list[Kind], dict[str, Any]], chosen: DebeziumOptions, batch_rows: int
) -> None:
    relation, kinds, described = table
    known = described if data.draw(st.booleans()) else None
    buffer, relations = data.draw(buffers(kinds, odd=False)), [encode_message(relation)]
    arguments: dict[str, Any] = {"types": CATALOG, "form": "debezium", "debezium": encoder_maker(chosen, known)}
    keys = chosen.message_keys
    wanted = reference_rows([buffer], relations, keys=keys, **arguments)
    batches = fast_batches([buffer], relations, images=True, keys=keys, batch_rows=batch_rows, **arguments)
    found = fast_rows(batches, images=True, keys=keys)
    assert found == wanted
    positions = [row["_position"] for row in found]
    assert positions == sorted(set(positions))
    for row in found:
        for text in (row["_payload"], row.get("_partition_key")):
            if text:
                json.loads(text)


@given(data=st.data(), table=tables(), chosen=options)
def test_odd_values_are_taken_or_refused_as_the_encoder_does(
    data: st.DataObject, table: tuple[Relation, list[Kind], dict[str, Any]], chosen: DebeziumOptions
) -> None:
    relation, kinds, described = table
    buffer, relations = data.draw(buffers(kinds, odd=True)), [encode_message(relation)]
    arguments: dict[str, Any] = {"types": CATALOG, "form": "debezium", "debezium": encoder_maker(chosen, described)}
    wanted: list[dict[str, Any]] | None = None
    with contextlib.suppress(ProtocolError, DataError):
        wanted = reference_rows([buffer], relations, images=False, keys=chosen.message_keys, **arguments)
    found: list[dict[str, Any]] | None = None
    with contextlib.suppress(ProtocolError, DataError):
        batches = fast_batches([buffer], relations, keys=chosen.message_keys, **arguments)
        found = fast_rows(batches, keys=chosen.message_keys)
    assert found == wanted


def test_a_key_that_was_not_sent_whole_says_so() -> None:
    """Whatever stands in the columns of an old row that are not of the replica identity."""
    columns = (RelationColumn(True, "id", 16, -1), RelationColumn(False, "other", 17, -1))
    relation = Relation(7, "s", "t", ReplicaIdentity.DEFAULT, columns)
    buffer = spooled([Begin(1, 1, 9), Delete(7, OldRow(OldKind.KEY, (b"t", None)))])
    encoder = encoder_maker(DebeziumOptions(topic_prefix="shop"), {"columns": [], "primary_key": ["id", "other"]})
    arguments: dict[str, Any] = {"types": CATALOG, "form": "debezium", "debezium": encoder, "keys": True}
    wanted = reference_rows([buffer], [encode_message(relation)], images=False, **arguments)
    assert fast_rows(fast_batches([buffer], [encode_message(relation)], **arguments), keys=True) == wanted
    assert json.loads(wanted[0]["_partition_key"])["id"] is True


def test_a_large_part_of_a_key_that_moves_is_that_of_the_old_row() -> None:
    """The server leaves out a large value that the update did not touch, in the new row alone."""
    columns = (RelationColumn(True, "id", 16, -1), RelationColumn(True, "large", 25, -1))
    relation = Relation(7, "s", "t", ReplicaIdentity.DEFAULT, columns)
    moved = Update(7, OldRow(OldKind.KEY, (b"t", b"whole")), (b"f", UNCHANGED))
    encoder = encoder_maker(DebeziumOptions(topic_prefix="shop"), {"columns": [], "primary_key": ["id", "large"]})
    arguments: dict[str, Any] = {"types": CATALOG, "form": "debezium", "debezium": encoder, "keys": True}
    buffer, relations = spooled([Begin(1, 1, 9), moved]), [encode_message(relation)]
    found = fast_rows(fast_batches([buffer], relations, **arguments), keys=True)
    assert [json.loads(row["_partition_key"]) for row in found] == [
        {"id": True, "large": "whole"},
        {"id": True, "large": "whole"},
        {"id": False, "large": "whole"},
    ]


@given(data=st.data(), table=tables(), chosen=options.filter(lambda each: not each.schemas_enable))
def test_events_are_as_their_registered_schemas_say(
    data: st.DataObject, table: tuple[Relation, list[Kind], dict[str, Any]], chosen: DebeziumOptions
) -> None:
    relation, kinds, described = table
    schemas: list[str] = []
    if relation.identity in (ReplicaIdentity.DEFAULT, ReplicaIdentity.NOTHING):  # then the server sends the primary key
        described["primary_key"] = [column.name for column in relation.columns if column.is_key]
    known = described if data.draw(st.booleans()) else None

    def frame(schema: dict[str, Any], of: Relation | str, /, *, is_key: bool) -> bytes:
        assert isinstance(of, Relation)
        schemas.append(json_schema(schema))
        return framed(0xFF000000 | 2 * (len(schemas) - 1) + is_key)

    def encoder(types: TypeCatalog) -> DebeziumEncoder:
        return DebeziumEncoder(types, chosen, database="db", described=lambda relation: known, frame=frame)

    buffer, relations = data.draw(buffers(kinds, odd=False, nulls=False)), [encode_message(relation)]
    batches = fast_batches(
        [buffer], relations, types=CATALOG, form="debezium", debezium=encoder, keys=chosen.message_keys
    )
    for row in fast_rows(batches, keys=chosen.message_keys):
        for text, is_key in ((row["_payload"], False), (row.get("_partition_key"), True)):
            if text:
                number = int.from_bytes(text[1:5], "big") & 0xFFFFFF
                assert (text[:2], number % 2) == (b"\0\xff", is_key)
                jsonschema_rs.validate(json.loads(schemas[number // 2]), json.loads(text[5:]))
