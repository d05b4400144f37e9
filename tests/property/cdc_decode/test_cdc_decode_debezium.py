"""The compiled writer of Debezium's events gives the bytes of its encoder, under every option."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from headgate.model import DataError, ProtocolError
from headgate.wire.envelope import DebeziumEncoder, DebeziumOptions
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


def rows(kinds: list[Kind], *, odd: bool) -> st.SearchStrategy[Row]:
    def cell(kind: Kind) -> st.SearchStrategy[Column]:
        good: st.SearchStrategy[Column] = st.none() | st.just(UNCHANGED) | kind.values | kind.values
        return good | ODD if odd else good

    return st.tuples(*map(cell, kinds))


@st.composite
def updates(draw: st.DrawFn, kinds: list[Kind], *, odd: bool) -> Update:
    """Old and new row often have the same key."""
    new = draw(rows(kinds, odd=odd))
    other = draw(rows(kinds, odd=odd))
    old = tuple(mine if draw(st.booleans()) else theirs for mine, theirs in zip(new, other, strict=True))
    return Update(7, draw(st.none() | st.builds(OldRow, st.sampled_from(OldKind), st.just(old))), new)


@st.composite
def buffers(draw: st.DrawFn, kinds: list[Kind], *, odd: bool) -> bytes:
    row = rows(kinds, odd=odd)
    change: st.SearchStrategy[Message] = st.one_of(
        st.builds(Insert, st.just(7), row),
        updates(kinds, odd=odd),
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
