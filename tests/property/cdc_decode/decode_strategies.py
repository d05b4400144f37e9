"""Strategies for what may lie in a spool: values of every rule, rows, relations that change, transactions."""

from __future__ import annotations

from hypothesis import strategies as st

from headgate.wire.pgoutput import (
    UNCHANGED,
    Begin,
    BinaryValue,
    Column,
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
)
from headgate.wire.pgtypes import Attribute, TypeCatalog, TypeInfo, TypeKind
from tests.property.pgoutput.pgoutput_strategies import i64, names, text, u32, u64

PAIR, PAIRS, HSTORE, DOMAIN, MOOD = 20001, 20002, 20003, 20004, 20005
CATALOG = TypeCatalog(
    [
        TypeInfo(PAIR, "pair", TypeKind.COMPOSITE, attributes=(Attribute("n", 20), Attribute('t "x"', 25))),
        TypeInfo(PAIRS, "_pair", TypeKind.ARRAY, element=PAIR),
        TypeInfo(HSTORE, "hstore"),
        TypeInfo(DOMAIN, "stamp", TypeKind.DOMAIN, base=1184),
        TypeInfo(MOOD, "mood", TypeKind.ENUM),
    ]
)


def encoded(values: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    return values.map(str.encode)


def pg_float(value: float) -> str:
    return repr(value).removesuffix(".0")


long_text = st.builds(
    lambda part, times: part * times, text | st.text('ab"\\\n\x01\x1f é漢🎉', max_size=40), st.integers(1, 40)
)
decimals = st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?(e[+-][0-9]{1,5})?", fullmatch=True)
digits = st.integers(0, 99).map("{:02}".format)
days = st.builds("{:04}-{}-{}".format, st.integers(1, 9999), digits, digits)
clocks = st.builds("{}:{}:{}".format, digits, digits, digits)
fractions = st.just("") | st.integers(1, 6).flatmap(lambda n: st.text("0123456789", min_size=n, max_size=n)).map(
    ".{}".format
)
rare_days = st.sampled_from(["infinity", "-infinity", "12345-06-07", "0044-03-15 BC"])
json_text = st.sampled_from(
    ['{"a": 1}', "[1,\n2]", "null", '"é\\n"', ' {"long":\r\n"' + "x" * 300 + '"} ', "1e5", '{"a":{"b":[true,"\\\\"]}}']
)

rare_clocks = st.sampled_from(
    ["-infinity", "2025-01-01 00:00:00+05:30", "2025-01-01 00:00:00-08", "0044-03-15 12:00:00.5+00 BC"]
)
floats = st.floats(allow_nan=False, allow_infinity=False).map(pg_float) | decimals.filter(
    lambda d: abs(float(d)) < 1e308
)

# Text that a server may send for the type.
GOOD: dict[int, st.SearchStrategy[bytes]] = {
    16: st.sampled_from([b"t", b"f"]),
    17: (st.binary(max_size=20) | st.binary(min_size=250, max_size=300)).map(lambda raw: b"\\x" + raw.hex().encode()),
    20: encoded(i64.map(str)),
    21: encoded(st.integers(-300, 300).map(str)),
    25: encoded(text),
    1043: encoded(long_text),
    114: encoded(json_text),
    3802: encoded(json_text),
    701: encoded(floats),
    700: st.sampled_from([b"NaN", b"Infinity", b"-Infinity", b"0", b"-0", b"1e-45", b"37", b"1e+20", b"3.4028235e+38"]),
    1700: st.sampled_from([b"0.00", b"-1.10", b"NaN", b"12345678901234567890.123"]),
    1082: encoded(days | rare_days),
    1114: encoded(st.builds("{} {}{}".format, days, clocks, fractions) | st.just("0001-01-01 00:00:00 BC")),
    1184: encoded(st.builds("{} {}{}+00".format, days, clocks, fractions) | rare_clocks),
    1266: encoded(st.builds("{}{}{}".format, clocks, fractions, st.sampled_from(["+00", "-08", "+05:30"]))),
    1083: encoded(clocks),
    2950: st.just(b"f4b0611f-7258-47f8-bceb-0eba9ac5195a"),
    1007: st.sampled_from([b"{}", b"{1,NULL,3}", b"{{1,2},{3,4}}", b"[0:1]={7,8}"]),
    1009: st.sampled_from([b"{}", b'{a,NULL,"a b","q\\"q"}']),
    PAIR: st.sampled_from([b"(1,two)", b"(,)", b'(7,"a b")', b"(1,2,3)"]),
    PAIRS: st.sampled_from([b"{}", b'{"(1,two)",NULL}']),
    HSTORE: st.sampled_from([b"", b'"a"=>"1", "b"=>NULL']),
    DOMAIN: st.just(b"2025-12-12 12:00:34.338547+00"),
    MOOD: st.sampled_from([b"sad", 'it"s é'.encode()]),
    99999: encoded(text),
}

# What a server should not send: each rule must leave it to the reference, or take it as the reference does.
ODD_VALUES = (
    b"", b"-", b"+", b"-0", b"+1", b"00", b"01", b"1_0", b" 1", b"1 ", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809", b"9999999999999999999",
    b"18446744073709551616", b"\xd9\xa1", b"1.", b".5", b"1e5", b"1e+", b"1e+5x", b"1E+5", b"nan", b"inf", b"1e+308",
    b"1e+309", b"1.8e+308", b"99e+308", b"1e-400", b"1.5e+00005", b"0e+999999", b"123456789012345678901234567890",
    b"0.000000000000000000000000000001", b"1..2", b"--1", b"true", b"T",
    b"\\x", b"\\x0", b"\\x0g", b"\\X00", b"00ff", b"\\xABCDef",
    b"2025-01-01", b"2025-01-0", b"2025-1-01", b"2025/01/01", b"20250-01-01", b"202a-01-01", b"2025-01-01 BC",
    b"2025-01-01 00:00:00", b"2025-01-01T00:00:00", b"2025-01-01 00:00:00.", b"2025-01-01 00:00:00.1234567",
    b"2025-01-01 00:00:00+00", b"2025-01-01 00:00:00.1+00", b"2025-01-01 00:00:00+01", b"2025-01-01 00:00:00+0a",
    b"2025-01-01 00:00:00.+00", b"+00", b"\xd9\xa1025-01-01", b"\xef\xbc\x92025-01-01", b"infinity",
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf",
    b"\xe2\x82",
    b"\xc3", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"a\x80", b"\x7f\x80", b"a" * 31, b"a" * 32, b"a" * 255,
    b"a" * 256, b"a" * 70000, b"{", b"{1", b"(1", b'"a"=>', b"a\x00b",
)  # fmt: skip
ODD = st.binary(max_size=12) | st.sampled_from(ODD_VALUES)


def cells(oid: int, *, odd: bool) -> st.SearchStrategy[Column]:
    good: st.SearchStrategy[Column] = st.none() | GOOD[oid] | GOOD[oid] | GOOD[oid]
    return good | ODD | ODD.map(BinaryValue) if odd else good


@st.composite
def relations(draw: st.DrawFn, relation_id: int) -> Relation:
    oids = draw(st.lists(st.sampled_from(sorted(GOOD)), max_size=20) | st.lists(st.sampled_from([20, 25]), max_size=5))
    column_names = draw(st.lists(names, min_size=len(oids), max_size=len(oids), unique=True))
    pairs = zip(column_names, oids, strict=True)
    columns = tuple(RelationColumn(draw(st.booleans()), name, oid, -1) for name, oid in pairs)
    schema = draw(st.sampled_from(["public", "pg_catalog", 'a "b".c', "é"]))
    return Relation(relation_id, schema, draw(names), draw(st.sampled_from(ReplicaIdentity)), columns)


@st.composite
def rows(draw: st.DrawFn, relation: Relation, *, odd: bool) -> Row:
    return tuple(draw(st.just(UNCHANGED) | cells(column.type_id, odd=odd)) for column in relation.columns)


@st.composite
def changes(draw: st.DrawFn, known: dict[int, Relation], *, odd: bool) -> list[Message]:
    """One change, or a new shape of a relation, or what stands beside changes."""
    relation = known[draw(st.sampled_from(sorted(known)))]
    row = rows(relation, odd=odd)
    old = st.builds(OldRow, st.sampled_from(OldKind), row)
    kind = draw(st.sampled_from("IIIUUUDDTMRYO"))
    made: st.SearchStrategy[Message]
    if kind == "I":
        made = st.builds(Insert, st.just(relation.relation_id), row)
    elif kind == "U":
        made = st.builds(Update, st.just(relation.relation_id), st.none() | old, row)
    elif kind == "D":
        made = st.builds(Delete, st.just(relation.relation_id), old)
    elif kind == "T":
        ids = st.lists(st.sampled_from(sorted(known)), max_size=4).map(tuple)
        made = st.builds(Truncate, ids, st.booleans(), st.booleans())
    elif kind == "M":
        made = st.builds(LogicalMessage, st.just(True), u64, text, st.binary(max_size=40))
    elif kind == "R":
        made = relations(relation.relation_id)
    elif kind == "Y":
        made = st.builds(Type, u32, names, names)
    else:
        made = st.builds(Origin, u64, text)
    message = draw(made)
    if isinstance(message, Relation):
        known[message.relation_id] = message
    return [message]


@st.composite
def ranges(draw: st.DrawFn, *, odd: bool = False) -> tuple[list[Relation], list[list[Message]]]:
    """What is known before the range, and its buffers: lists of messages."""
    start = [draw(relations(relation_id)) for relation_id in draw(st.sets(u32, min_size=1, max_size=3))]
    known = {relation.relation_id: relation for relation in start}
    buffers: list[list[Message]] = []
    for _ in range(draw(st.integers(1, 2))):
        buffer: list[Message] = []
        for _ in range(draw(st.integers(0, 3))):
            buffer += draw(transactions(known, odd=odd))
        buffers.append(buffer)
    return start, buffers


@st.composite
def transactions(draw: st.DrawFn, known: dict[int, Relation], *, odd: bool) -> list[Message]:
    lsn = draw(u64)
    if draw(st.integers(0, 7)) == 0:
        alone = draw(st.builds(LogicalMessage, st.just(False), st.integers(1, 2**64 - 1), text, st.binary(max_size=9)))
        return [Begin(alone.lsn, 0, 0), alone]
    time = draw(st.just(0) | st.integers(-63082281600000000, 252455615999999999))
    body = [message for _ in range(draw(st.integers(0, 5))) for message in draw(changes(known, odd=odd))]
    return [Begin(lsn, time, draw(u32)), *body]
