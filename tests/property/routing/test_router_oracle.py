"""The router against one that looks at every row by itself."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import record
from headgate.model.address import Address
from headgate.pipeline.routing.router import ABSENT, KEY, KEY_STREAM, KEY_TOPIC, Router, key_columns, lookup_column
from headgate.pipeline.routing.rules import Encoding, Lookup, Rules

Row = dict[str, Any]

NAMES = ("a", "b", "c.d", "public", "ä", "a/b", "*", " ")
values = st.none() | st.sampled_from(("", *NAMES))
destinations = st.builds(Address, st.sampled_from(("", "s", "t")), st.sampled_from(("x", "y", "z")))
hostile_keys = (
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.integers(-(2**70), 2**70).map(str)
    | st.sampled_from(["-0", "+1", "1.0", "²", "٣", " 7", "7\n", "-", "0x1", "9" * 18, "9" * 19, str(2**32 + 5)])
)


def lookups() -> st.SearchStrategy[tuple[Lookup, ...]]:
    mapping = st.dictionaries(st.sampled_from(NAMES), st.lists(destinations, min_size=1, max_size=3).map(tuple))
    return st.lists(st.builds(Lookup, mapping, st.booleans()), min_size=1, max_size=3).map(tuple)


@st.composite
def any_rules(draw: st.DrawFn) -> Rules:
    shared: dict[str, Any] = {
        "default_stream": draw(st.none() | st.just("ds")),
        "default_topic": draw(st.none() | st.just("dt")),
        "use_default": draw(st.booleans()),
        "partition_key_column": draw(st.none() | st.just("key")),
        "encoding": draw(st.sampled_from(["bytes", "key_u32", "partition_id"])),
    }
    if draw(st.booleans()):
        return Rules(lookups=draw(lookups()), **shared)
    tables = st.dictionaries(st.sampled_from(["public.a", "a.b", "b.a"]), destinations)
    return Rules(
        by_table=draw(tables),
        by_stream_column=draw(st.none() | st.just("stream")),
        by_topic_column=draw(st.none() | st.just("topic")),
        **shared,
    )


@st.composite
def any_batch(draw: st.DrawFn, rules: Rules) -> tuple[pa.RecordBatch, list[Row]]:
    names = key_columns(rules)
    columns: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(names, values)
    if rules.partition_key_column:
        columns[KEY] = hostile_keys
    if draw(st.booleans()):
        columns[ABSENT] = st.one_of(st.none(), st.booleans())
    rows: list[Row] = draw(st.lists(st.fixed_dictionaries(columns), max_size=12))
    for number, row in enumerate(rows):
        row |= {record.MESSAGE_ID: f"m-{number}", record.PAYLOAD: b"%d" % number}
    arrays = {
        record.MESSAGE_ID: pa.array([row[record.MESSAGE_ID] for row in rows], pa.string()),
        record.PAYLOAD: pa.array([row[record.PAYLOAD] for row in rows], pa.binary()),
    }
    for name in columns:
        array = pa.array([row[name] for row in rows], pa.bool_() if name == ABSENT else pa.string())
        arrays[name] = array.dictionary_encode() if name != ABSENT and draw(st.booleans()) else array
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays)), rows


def slow_choice(rules: Rules, row: Row) -> list[Address]:
    found: set[Address] = set()
    if rules.lookups:
        for number, lookup in enumerate(rules.lookups):
            targets = lookup.mapping.get(row[lookup_column(number)], ())
            found |= set(targets)
            if targets and lookup.stops:
                break
    else:
        named = rules.by_table.get(f"{row.get(record.SCHEMA)}.{row.get(record.TABLE)}")
        topic = row.get(KEY_TOPIC) or (named.topic if named else None)
        stream = row.get(KEY_STREAM) or (named.stream if named else None)
        if topic or stream:
            topic = topic or (rules.default_topic if rules.use_default else None)
            if topic:
                found.add(Address(stream or rules.default_stream or "", topic))
    if not found and rules.use_default and rules.default_topic:
        found.add(Address(rules.default_stream or "", rules.default_topic))
    return sorted(found)


def slow_key(text: str | None, encoding: Encoding) -> Any:
    if text is None or encoding == "bytes":
        return None if text is None else text.encode()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        return None
    if encoding == "partition_id":
        return int(text)
    return struct.pack("<Q", int(text))[:4] if int(text) >= 0 else None


@given(st.data())
def test_every_row_goes_where_it_would_go_alone(data: st.DataObject) -> None:
    rules = data.draw(any_rules())
    batch, rows = data.draw(any_batch(rules))
    routed = Router(rules).route(batch)

    expected = []
    for row in rows:
        for copy, wanted in enumerate(slow_choice(rules, row)):
            message_id = row[record.MESSAGE_ID] + (f"~{copy}" if copy else "")
            expected.append((wanted, message_id, row[record.PAYLOAD], row.get(KEY)))
    found = routed.rows.to_pylist()
    assert [routed.wanted[index] for index in routed.index] == [wanted for wanted, *_ in expected]
    assert [row[record.TOPIC] for row in found] == [wanted.topic for wanted, *_ in expected]
    assert [(row[record.MESSAGE_ID], row[record.PAYLOAD]) for row in found] == [(i, p) for _, i, p, _ in expected]
    if rules.partition_key_column:
        column = record.PARTITION if rules.encoding == "partition_id" else record.PARTITION_KEY
        assert [row[column] for row in found] == [slow_key(key, rules.encoding) for *_, key in expected]
    assert [row[record.MESSAGE_ID] for row in routed.missing.to_pylist()] == [
        row[record.MESSAGE_ID] for row in rows if not slow_choice(rules, row)
    ]
    assert routed.absent == sum(row.get(ABSENT) is True for row in rows)
    ids = [row[record.MESSAGE_ID] for row in found]
    assert len(set(ids)) == len(ids)


@given(st.data())
def test_a_router_that_has_seen_much_routes_as_a_new_one(data: st.DataObject) -> None:
    rules = data.draw(any_rules())
    router = Router(rules)
    for _ in range(3):
        batch, _rows = data.draw(any_batch(rules))
        ours, fresh = router.route(batch), Router(rules).route(batch)
        assert (ours.rows, ours.wanted, list(ours.index)) == (fresh.rows, fresh.wanted, list(fresh.index))
