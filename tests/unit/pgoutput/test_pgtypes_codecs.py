"""Text forms that a server prints, and text forms that it never would."""

from __future__ import annotations

import math
import pickle

import pytest

from headgate.model import DataError, ProtocolError
from headgate.wire.pgtypes import Attribute, TypeCatalog, TypeInfo, TypeKind, Value, announced_type

HSTORE = TypeInfo(20001, "hstore")
MOOD = TypeInfo(20002, "mood", TypeKind.ENUM)
PAIR = TypeInfo(20003, "pair", TypeKind.COMPOSITE, attributes=(Attribute("a", 23), Attribute("b", 25)))
PAIRS = TypeInfo(20004, "_pair", TypeKind.ARRAY, element=20003)
AGE = TypeInfo(20005, "age", TypeKind.DOMAIN, base=20006)
WHOLE = TypeInfo(20006, "whole", TypeKind.DOMAIN, base=23)
SPAN = TypeInfo(20007, "span", TypeKind.RANGE)
CITEXT = TypeInfo(20008, "citext")
CATALOG = TypeCatalog([HSTORE, MOOD, PAIR, PAIRS, AGE, WHOLE, SPAN, CITEXT])
BOOL, BYTEA, INT8, FLOAT8, DATE, TIMETZ, TIMESTAMP, TIMESTAMPTZ, JSON, INTS = (
    16, 17, 20, 701, 1082, 1266, 1114, 1184, 114, 1007
)  # fmt: skip


@pytest.mark.parametrize(
    ("oid", "text", "value", "json"),
    [
        (25, 'a "b"\n', 'a "b"\n', '"a \\"b\\"\\n"'),
        (999_999, "unknown", "unknown", '"unknown"'),
        (BOOL, "t", True, "true"),
        (BOOL, "f", False, "false"),
        (INT8, "-9223372036854775808", -(2**63), "-9223372036854775808"),
        (FLOAT8, "37", 37.0, "37.0"),
        (FLOAT8, "-0", -0.0, "-0.0"),
        (FLOAT8, "1e+20", 1e20, "1e+20"),
        (FLOAT8, "0.1", 0.1, "0.1"),
        (FLOAT8, "Infinity", math.inf, '"Infinity"'),
        (FLOAT8, "-Infinity", -math.inf, '"-Infinity"'),
        (1700, "1.10", "1.10", '"1.10"'),
        (1700, "NaN", "NaN", '"NaN"'),
        (BYTEA, "\\x", b"", '""'),
        (BYTEA, "\\x00ff10", b"\x00\xff\x10", '"AP8Q"'),
        (JSON, '{"a":\r\n1}', '{"a":\r\n1}', ' {"a":\t \t\t  1}'),
        (DATE, "0044-03-15 BC", "-0043-03-15", '"-0043-03-15"'),
        (DATE, "10000-01-01", "+10000-01-01", '"+10000-01-01"'),
        (TIMESTAMP, "2025-01-02 03:04:05.6", "2025-01-02T03:04:05.6", '"2025-01-02T03:04:05.6"'),
        (TIMESTAMPTZ, "2025-01-02 03:04:05+00", "2025-01-02T03:04:05Z", '"2025-01-02T03:04:05Z"'),
        (TIMESTAMPTZ, "0001-01-01 00:00:00-00:01:15 BC", "0000-01-01T00:00:00-00:01:15", None),
        (TIMESTAMPTZ, "infinity", "infinity", '"infinity"'),
        (TIMETZ, "24:00:00+05:30", "24:00:00+05:30", '"24:00:00+05:30"'),
        (1083, "24:00:00", "24:00:00", '"24:00:00"'),
        (1186, "P1Y2M-3DT4H5M6.789S", "P1Y2M-3DT4H5M6.789S", '"P1Y2M-3DT4H5M6.789S"'),
        (INTS, "{}", [], "[]"),
        (INTS, "{{1,NULL},{3,4}}", [[1, None], [3, 4]], "[[1,null],[3,4]]"),
        (INTS, "[0:1]={7,8}", "[0:1]={7,8}", '"[0:1]={7,8}"'),
        (199, '{[1],"null",NULL}', ["[1]", "null", None], "[ [1], null,null]"),
        (20001, '"a"=>"1", "b"=>NULL', {"a": "1", "b": None}, '{"a":"1","b":null}'),
        (20001, "", {}, "{}"),
        (20001, r'"q\"\\"=>", "', {'q"\\': ", "}, '{"q\\"\\\\":", "}'),
        (20002, "sad", "sad", '"sad"'),
        (20003, '(1,"x ""y""")', {"a": 1, "b": 'x "y"'}, '{"a":1,"b":"x \\"y\\""}'),
        (20003, "(,)", {"a": None, "b": None}, '{"a":null,"b":null}'),
        (20003, "(1,2,3)", "(1,2,3)", '"(1,2,3)"'),
        (20003, "()", "()", '"()"'),
        (20004, '{"(1,b)",NULL}', [{"a": 1, "b": "b"}, None], '[{"a":1,"b":"b"},null]'),
        (20005, "7", 7, "7"),
        (20007, "[1,2)", "[1,2)", '"[1,2)"'),
        (20008, "Text", "Text", '"Text"'),
    ],
)
def test_values(oid: int, text: str, value: Value, json: str | None) -> None:
    codec = CATALOG.codec(oid)
    assert codec.decode(text) == value
    assert type(codec.decode(text)) is type(value)
    assert codec.encode(value) == text or float(codec.encode(value)) == value  # 37.0 for 37
    assert json is None or codec.json(text) == json


def test_nan() -> None:
    codec = CATALOG.codec(FLOAT8)
    value = codec.decode("NaN")
    assert isinstance(value, float)
    assert math.isnan(value)
    assert (codec.json("NaN"), codec.encode(value)) == ('"NaN"', "NaN")


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (BOOL, "true"),
        (BOOL, ""),
        (INT8, ""),
        (INT8, "1.0"),
        (INT8, "+1"),
        (INT8, "01"),
        (INT8, "-0"),
        (INT8, "1_0"),
        (INT8, "\N{ARABIC-INDIC DIGIT ONE}"),
        (INT8, "9223372036854775808"),
        (INT8, "1" * 5000),
        (INT8, '1,"injected":2'),
        (FLOAT8, "nan"),
        (FLOAT8, "1e5"),
        (FLOAT8, "1e+999"),
        (FLOAT8, "00"),
        (FLOAT8, "01.5"),
        (FLOAT8, ".5"),
        (FLOAT8, "0x1"),
        (FLOAT8, ""),
        (BYTEA, "abc"),
        (BYTEA, "\\x0"),
        (BYTEA, "\\x0g"),
        (BYTEA, "\\x00 00"),
        (BYTEA, "\\000"),
        (DATE, "31/01/2025"),
        (DATE, "2025-01-31 00:00:00"),
        (DATE, "2025-01-31\n"),
        (TIMESTAMP, "2025-01-31"),
        (TIMESTAMP, "2025-01-02 03:04:05+00"),
        (TIMESTAMPTZ, "2025-01-02 03:04:05"),
        (TIMESTAMPTZ, "Thu Jan 02 03:04:05 2025 UTC"),
        (TIMETZ, "12:00:00"),
        (INTS, ""),
        (INTS, "{"),
        (INTS, "}"),
        (INTS, "{1"),
        (INTS, "{1,}"),
        (INTS, "{,1}"),
        (INTS, "{1}}"),
        (INTS, "{1}{2}"),
        (INTS, "{1}2"),
        (INTS, '{"1}'),
        (INTS, "{{{{{{{1}}}}}}}"),
        (INTS, "{" * 100_000),
        (INTS, "{a}"),
        (20001, '"a"'),
        (20001, '"a"=>"1",'),
        (20001, '"a"=>"1", '),
        (20001, "a=>1"),
        (20003, ""),
        (20003, "("),
        (20003, ")"),
        (20003, "1,2"),
        (20003, "(1,2"),
        (20003, '(1,"2)'),
        (20003, '(1,"2"x)'),
        (20003, "(1,(2))"),
        (20003, "(x,2)"),
    ],
)
def test_text_that_no_server_prints(oid: int, text: str) -> None:
    codec = CATALOG.codec(oid)
    for read in (codec.decode, codec.json):
        with pytest.raises(ProtocolError) as caught:
            read(text)
        assert not text or len(text) < 5 or text not in str(caught.value)


@pytest.mark.parametrize("oid", [BOOL, BYTEA, INT8, FLOAT8, DATE, TIMETZ, INTS, 25, 20001, 20003])
def test_values_of_another_kind(oid: int) -> None:
    wrong: Value = object()  # type: ignore[assignment]
    with pytest.raises(DataError, match="a object cannot be written"):
        CATALOG.codec(oid).encode(wrong)


def test_numbers_and_booleans_are_not_mixed_up() -> None:
    with pytest.raises(DataError):
        CATALOG.codec(INT8).encode(True)
    with pytest.raises(DataError):
        CATALOG.codec(BOOL).encode(1)
    with pytest.raises(DataError):
        CATALOG.codec(20001).encode({"a": 1})
    with pytest.raises(DataError):
        CATALOG.codec(20003).encode({"a": 1})


def test_catalog_grows_by_copy_and_survives_pickle() -> None:
    grown = TypeCatalog().with_types([AGE, WHOLE])
    assert grown.codec(20005).decode("7") == 7
    assert TypeCatalog().codec(20005).decode("7") == "7"
    again = pickle.loads(pickle.dumps(grown))
    assert again.codec(20005).decode("7") == 7
    replaced = grown.with_types([TypeInfo(20005, "age", TypeKind.DOMAIN, base=25)])
    assert replaced.codec(20005).decode("7") == "7"


def test_a_circle_in_the_catalog_ends_as_text() -> None:
    catalog = TypeCatalog(
        [TypeInfo(1, "a", TypeKind.DOMAIN, base=2), TypeInfo(2, "b", TypeKind.DOMAIN, base=1)],
    )
    assert catalog.codec(1).decode("x") == "x"


def test_a_custom_type_cannot_take_a_builtin_types_place() -> None:
    assert TypeCatalog([TypeInfo(23, "mine")]).codec(23).decode("1") == 1
    assert TypeCatalog([TypeInfo(30000, "int4")]).codec(30000).decode("x") == "x"


def test_announced_types() -> None:
    assert announced_type(30000, "pg_catalog", "int4") == TypeInfo(30000, "int4", TypeKind.DOMAIN, base=23)
    assert announced_type(30000, "pg_catalog", "_text") == TypeInfo(30000, "_text", TypeKind.DOMAIN, base=1009)
    assert announced_type(30000, "public", "int4") is None
    assert announced_type(30000, "pg_catalog", "mood") is None
