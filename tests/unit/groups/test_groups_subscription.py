"""Topics in what consumers say to their leader; bytes that are something else have none."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.groups.subscription import assigned_partitions, subscribed_topics


@given(st.lists(st.text(max_size=20), max_size=5), st.binary(max_size=10))
def test_topics_are_found(topics: list[str], user_data: bytes) -> None:
    names = b"".join(pack(">h", len(each.encode())) + each.encode() for each in topics)
    assert subscribed_topics(pack(">hi", 1, len(topics)) + names + user_data) == topics


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=5)),
        max_size=5,
    ),
    st.binary(max_size=10),
)
def test_assigned_partitions_are_found(topics: list[tuple[str, list[int]]], user_data: bytes) -> None:
    written = b"".join(
        pack(">h", len(name.encode())) + name.encode() + pack(f">i{len(numbers)}i", len(numbers), *numbers)
        for name, numbers in topics
    )
    expected = [(name, number) for name, numbers in topics for number in numbers]
    assert assigned_partitions(pack(">hi", 1, len(topics)) + written + user_data) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_harm(data: bytes) -> None:
    assert all(isinstance(each, str) for each in subscribed_topics(data))
    assert all(isinstance(topic, str) and isinstance(number, int) for topic, number in assigned_partitions(data))


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\0\1\x7f\xff", b"\0\0\x7f\xff\xff\xff"], ids=["none", "short", "many"])
def test_what_is_cut_off_has_no_topics(data: bytes) -> None:
    assert subscribed_topics(data) == []
    assert assigned_partitions(data) == []
