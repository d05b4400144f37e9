"""Values survive their text form, JSON says the same, and any text gives a value or a ProtocolError."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.wire.pgtypes import BUILTIN_TYPES, Attribute, TypeCatalog, TypeInfo, TypeKind, Value
from tests.property.pgoutput.pgoutput_strategies import text

PAIR = TypeInfo(
    20001, "pair", TypeKind.COMPOSITE, attributes=(Attribute("n", 20), Attribute('t "x"', 25), Attribute("r", 17))
)
PAIRS = TypeInfo(20002, "_pair", TypeKind.ARRAY, element=20001)
HOLDER = TypeInfo(20003, "holder", TypeKind.COMPOSITE, attributes=(Attribute("all", 20002), Attribute("tags", 1009)))
HSTORE = TypeInfo(20004, "hstore")
CATALOG = TypeCatalog([PAIR, PAIRS, HOLDER, HSTORE])
OIDS = [*BUILTIN_TYPES, 20001, 20002, 20003, 20004]

int64 = st.integers(-(2**63), 2**63 - 1)
pairs = st.fixed_dictionaries(
    {"n": st.none() | int64, 't "x"': st.none() | text, "r": st.none() | st.binary(max_size=9)}
)
offsets = st.sampled_from(["Z", "+02:00", "-08:00", "+05:30", "-00:01:15", "+15:59:59"])
times = st.times().map(lambda t: t.isoformat().split("+")[0])
years = st.integers(-4712, 294_276).map(lambda y: f"{y:04}" if 0 <= y <= 9999 else f"{y:+05}")
days = st.builds("{}-{:02}-{:02}".format, years, st.integers(1, 12), st.integers(1, 28))
unbounded = st.sampled_from(["infinity", "-infinity"])


def shaped(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Arrays of one, two or three dimensions; an empty one has none."""
    cells = st.none() | elements

    def grid(width: int) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=3)

    flat = st.lists(cells, max_size=4)
    return flat | st.integers(1, 3).flatmap(grid) | st.lists(grid(2), min_size=1, max_size=2)


VALUES: dict[int, st.SearchStrategy[Any]] = {
    16: st.booleans(),
    17: st.binary(),
    20: int64,
    25: text,
    114: st.recursive(st.none() | st.booleans() | int64 | text, lambda v: st.lists(v) | st.dictionaries(text, v)).map(
        json.dumps
    ),
    701: st.floats(allow_nan=False),
    1000: shaped(st.booleans()),
    1001: shaped(st.binary(max_size=9)),
    1009: shaped(text),
    1016: shaped(int64),
    1020: shaped(st.sampled_from(["(1,1),(0,0)", "(2.5,2),(-1,0)"])),
    1082: days | unbounded,
    1114: st.builds("{}T{}".format, days, times) | unbounded,
    1184: st.builds("{}T{}{}".format, days, times, offsets) | unbounded,
    1266: st.builds("{}{}".format, times, offsets),
    20001: pairs,
    20002: shaped(pairs),
    20003: st.fixed_dictionaries({"all": st.none() | shaped(pairs), "tags": st.none() | shaped(text)}),
    20004: st.dictionaries(text, st.none() | text),
}


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_round_trip(oid: int, data: st.DataObject) -> None:
    codec = CATALOG.codec(oid)
    value = data.draw(VALUES[oid])
    written = codec.encode(value)
    assert codec.decode(written) == value
    assert codec.encode(codec.decode(written)) == written


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_json_says_the_same(oid: int, data: st.DataObject) -> None:
    codec = CATALOG.codec(oid)
    value = data.draw(VALUES[oid])
    if oid == 701 and isinstance(value, float):
        value = float(f"{value:.3e}") if math.isfinite(value) else value  # any text of a float will do here
        written = pg_float(value)
    else:
        written = codec.encode(value)
    as_json = codec.json(written)
    assert "\n" not in as_json
    assert json.loads(as_json) == (json.loads(value) if oid == 114 else plain(value))


def pg_float(value: float) -> str:
    """PostgreSQL's way to print a float: no `.0`."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value).removesuffix(".0")


def plain(value: Value) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and math.isinf(value):
        return pg_float(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@given(st.sampled_from(OIDS), st.text(max_size=60) | st.text('{}()[],;"\\=>NULL01:-+ \nxe.', max_size=60))
def test_any_text(oid: int, written: str) -> None:
    codec = CATALOG.codec(oid)
    with contextlib.suppress(ProtocolError):
        codec.decode(written)
        as_json = codec.json(written)
        if oid not in (114, 3802, 199, 3807):  # JSON is spliced in as the server sent it
            json.loads(as_json)


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_mutated_text(oid: int, data: st.DataObject) -> None:
    codec = CATALOG.codec(oid)
    written = codec.encode(data.draw(VALUES[oid]))
    at = data.draw(st.integers(0, len(written)))
    mutated = written[:at] + data.draw(st.text('{}(),"\\N0=>', max_size=3)) + written[at + 1 :]
    with contextlib.suppress(ProtocolError):
        codec.decode(mutated)
        codec.json(mutated)
