"""Batches of a stream of topics: everything once, in order, within the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import StateError, UsageError
from headgate.sources.kafka.offsets import Bounds, Partition, Reached, lost, next_end, parse_start, ranges

partitions = st.builds(Partition, st.sampled_from(["orders", "users-2"]), st.integers(0, 3))
bounds = st.builds(lambda earliest, more: Bounds(earliest, earliest + more), st.integers(0, 50), st.integers(0, 500))
topics = st.dictionaries(partitions, bounds, max_size=8)


@given(topics, st.integers(1, 100) | st.none(), st.sampled_from(["earliest", "latest"]))
def test_batches_cover_everything_once(there: dict[Partition, Bounds], most: int | None, start: str) -> None:
    reached = parse_start(start, there)
    read = {partition: [reached[partition]] for partition in there}
    while (end := next_end(reached, there, most)) != reached:
        batch = ranges(reached, end)
        # Every partition gives one message at least.
        assert most is None or sum(each.end - each.start for each in batch) <= most + len(there)
        for each in batch:
            assert each.start == read[each.partition][-1]
            read[each.partition].append(each.end)
        reached = end
    assert {partition: found[-1] for partition, found in read.items()} == {p: b.latest for p, b in there.items()}


@given(topics, topics)
def test_partitions_come_go_and_are_made_anew(before: dict[Partition, Bounds], after: dict[Partition, Bounds]) -> None:
    reached = next_end(parse_start("earliest", before), before, None)
    named = {text.split(" ")[0] for text in lost(reached, after)}
    bad = [p for p, at in reached.items() if p not in after or not after[p].earliest <= at <= after[p].latest]
    assert named == set(map(str, bad))
    for _ in range(2):  # the first time around, new partitions only get their beginning
        reached = next_end(reached, after, None)
    assert reached == {partition: found.latest for partition, found in after.items()}


@given(topics)
def test_offsets_survive_the_checkpoint(there: dict[Partition, Bounds]) -> None:
    reached = parse_start("latest", there)
    assert Reached.from_offset(reached.to_offset()) == reached


def test_a_start_may_be_given_by_partition() -> None:
    there = {Partition("t", n): Bounds(5, 9) for n in range(4)}
    start = parse_start('{"t": {"0": 7, "1": -1, "2": -2}}', there)
    assert start == {Partition("t", 0): 7, Partition("t", 1): 9, Partition("t", 2): 5, Partition("t", 3): 5}


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="startingOffsets"):
        parse_start("yesterday", {})
    with pytest.raises(StateError, match="no offsets of topics"):
        Reached.from_offset({"batch": 3})
