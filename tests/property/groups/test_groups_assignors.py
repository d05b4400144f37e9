"""Assignors: every partition goes to one who wants it, evenly, and few of them move."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.groups.assignors import ASSIGNORS, Want, assign_range, assign_uniform

TOPICS = [UUID(int=place) for place in range(1, 5)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
PARTITIONS = st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 8)))
WANTS = st.dictionaries(
    st.sampled_from("abcdefg"),
    st.builds(Want, st.text("xyz", max_size=2), st.frozensets(st.sampled_from(TOPICS)), PARTITIONS),
    min_size=1,
)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(WANTS, COUNTS)
def test_every_partition_goes_to_one_who_wants_it(name: str, wants: dict[str, Want], counts: dict[UUID, int]) -> None:
    result = ASSIGNORS[name](wants, counts)
    given_out = [partition for share in result.values() for partition in share]
    wanted = {topic for want in wants.values() for topic in want.topics if topic in counts}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    assert all(topic in wants[key].topics for key, share in result.items() for topic, _ in share)
    assert result.keys() == wants.keys()


@given(WANTS, COUNTS)
def test_uniform_leaves_nothing_that_one_move_would_make_more_even(
    wants: dict[str, Want], counts: dict[UUID, int]
) -> None:
    result = assign_uniform(wants, counts)
    for rich, share in result.items():
        for topic, _ in share:
            takers = [key for key, want in wants.items() if topic in want.topics and key != rich]
            assert all(len(result[poor]) + 1 >= len(share) for poor in takers)


@given(WANTS, COUNTS)
def test_uniform_is_at_rest_when_repeated(wants: dict[str, Want], counts: dict[UUID, int]) -> None:
    first = assign_uniform(wants, counts)
    again = {key: Want(want.order, want.topics, frozenset(first[key])) for key, want in wants.items()}
    assert assign_uniform(again, counts) == first


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 8))
def test_uniform_moves_no_more_than_it_must(partitions: int, before: int, after: int) -> None:
    topic = TOPICS[0]
    everything = frozenset([topic])
    first = assign_uniform({f"m{n}": Want("", everything, frozenset()) for n in range(before)}, {topic: partitions})
    wants = {f"m{n}": Want("", everything, frozenset(first.get(f"m{n}", ()))) for n in range(after or 1)}
    second = assign_uniform(wants, {topic: partitions})
    sizes = sorted(len(share) for share in second.values())
    assert sizes[-1] - sizes[0] <= 1
    lost = sum(len(first[key] - second.get(key, set())) for key in first)
    gone = sum(len(share) for key, share in first.items() if key not in second)
    surplus = sum(max(0, len(first.get(key, ())) - len(second[key])) for key in second)
    assert lost == gone + surplus


@given(st.integers(1, 20), st.integers(1, 6))
def test_range_cuts_topics_of_one_size_alike(partitions: int, members: int) -> None:
    both = frozenset(TOPICS[:2])
    wants = {f"m{n}": Want("", both, frozenset()) for n in range(members)}
    for share in assign_range(wants, dict.fromkeys(TOPICS[:2], partitions)).values():
        by_topic = [{index for topic, index in share if topic == each} for each in TOPICS[:2]]
        assert by_topic[0] == by_topic[1]
        assert sorted(by_topic[0]) == list(range(min(by_topic[0], default=0), max(by_topic[0], default=-1) + 1))
