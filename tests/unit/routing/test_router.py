"""Corners of the router that random rows seldom reach."""

from __future__ import annotations

import pyarrow as pa

from headgate.model import record
from headgate.model.address import Address
from headgate.pipeline.routing import router as module
from headgate.pipeline.routing.router import KEY_TOPIC, Router, key_columns
from headgate.pipeline.routing.rules import Lookup, Rules


def batch(**columns: pa.Array) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    given = {
        record.MESSAGE_ID: pa.array([f"m{number}" for number in range(count)], pa.string()),
        record.PAYLOAD: pa.array([b"x"] * count, pa.binary()),
        **columns,
    }
    return pa.RecordBatch.from_arrays(list(given.values()), names=list(given))


def test_a_dictionary_as_full_as_its_indices_allow() -> None:
    """With 128 values, an index of one byte has no room for a further number that means NULL."""
    names = [f"t{number}" for number in range(128)]
    indices = pa.array([*range(128), None], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(names))
    routed = Router(Rules(by_topic_column="c", default_topic="rest")).route(batch(**{KEY_TOPIC: column}))
    assert routed.rows.column(record.TOPIC).to_pylist() == [*names, "rest"]


def test_a_dictionary_with_unused_repeated_and_null_values() -> None:
    dictionary = pa.array(["unused", "a", "a", None])
    column = pa.DictionaryArray.from_arrays(pa.array([1, 2, 3, None], pa.int32()), dictionary)
    routed = Router(Rules(by_topic_column="c", default_topic="rest")).route(batch(**{KEY_TOPIC: column}))
    assert routed.rows.column(record.TOPIC).to_pylist() == ["a", "a", "rest", "rest"]
    assert routed.wanted == (Address("", "a"), Address("", "rest"))


def test_no_rows() -> None:
    for rules in (Rules(by_topic_column="c", default_topic="d"), Rules(lookups=(Lookup({}),)), Rules()):
        empty = batch(**{name: pa.array([], pa.string()) for name in (*key_columns(rules), "x")})
        routed = Router(rules).route(empty)
        assert (routed.rows.num_rows, routed.wanted, len(routed.index), routed.missing.num_rows) == (0, (), 0, 0)


def test_what_it_remembers_is_bounded() -> None:
    router = Router(Rules(by_topic_column="c", default_topic="rest"))
    count = module._MOST_CHOICES + 10
    for start in (0, count):
        topics = pa.array([f"t{number}" for number in range(start, start + count)])
        assert router.route(batch(**{KEY_TOPIC: topics})).rows.num_rows == count
        assert len(router._choices) <= module._MOST_CHOICES
