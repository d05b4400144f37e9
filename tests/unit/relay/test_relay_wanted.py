"""Filters of the Jetstream door, and what the log keeps beside a frame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.relay.doors import Subject, Wanted
from headgate.wire.atproto.logged import frame_of, logged, origin_of, time_of

COLLECTIONS = ["app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.graph.follow", "app.bskyx.feed.post", "x.y.z"]
PREFIXES = ["app.bsky.", "app.bsky.graph.", "x.y."]
DIDS = ["did:plc:a", "did:plc:b", "did:web:c"]

subjects = st.builds(
    Subject,
    st.sampled_from(DIDS),
    st.none() | st.sampled_from(COLLECTIONS),
    st.integers(0, 100),
    st.integers(0, 1000),
)
filters = st.builds(
    Wanted,
    st.frozensets(st.sampled_from(COLLECTIONS)),
    st.lists(st.sampled_from(PREFIXES), unique=True).map(tuple),
    st.frozensets(st.sampled_from(DIDS)),
    st.integers(0, 1000),
    st.integers(0, 100),
)


@given(subjects, filters)
def test_a_filter_takes_what_meets_each_of_its_wishes(subject: Subject, wanted: Wanted) -> None:
    names = [subject.collection == name for name in wanted.collections]
    names += [str(subject.collection).startswith(prefix) for prefix in wanted.prefixes]
    wishes = (
        subject.collection is None or not names or any(names),
        not wanted.dids or subject.did in wanted.dids,
        not wanted.max_bytes or subject.size <= wanted.max_bytes,
        subject.time_us >= wanted.since_us,
    )
    assert wanted.takes(subject) == all(wishes)


@given(st.integers(0, 2**63 - 1), st.binary())
def test_the_log_keeps_the_time_and_the_frame(time_us: int, frame: bytes) -> None:
    payload = logged(time_us, frame)
    assert (time_of(payload), frame_of(payload), origin_of(payload)) == (time_us, frame, None)
    payload = logged(time_us, frame, "pds.example", 7)
    assert (time_of(payload), frame_of(payload), origin_of(payload)) == (time_us, frame, ("pds.example", 7))
    for size in range(28):  # whatever the bytes, no crash
        assert len(frame_of(payload[:size])) <= size
