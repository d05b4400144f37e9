"""Fetch sessions: a reader that hears only of news knows what one knows that is told everything; memory is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.gateway.context import Session
from headgate.gateway.fetch_sessions import EVICTION_S, FetchSessions
from headgate.wire.kafka import NO_UUID
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from headgate.wire.kafka.refusal import Refused

INDEXES = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(
        st.sets(INDEXES),  # added, or asked for anew
        st.sets(INDEXES),  # forgotten
        st.dictionaries(INDEXES, st.sampled_from(["grows", "shrinks", "fails", "heals", "has records"])),
    ),
    max_size=12,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def topics(*indexes: int) -> tuple[FetchTopic, ...]:
    return (FetchTopic("t", partitions=tuple(FetchPartition(partition=index) for index in indexes)),) if indexes else ()


def begin(sessions: FetchSessions, owner: Session, count: int) -> int:
    """The number of a session with so many partitions; 0 if there is none."""
    turn = sessions.turn(owner, FetchRequest(session_epoch=0, topics=topics(*range(count))), uses_ids=False)
    return turn.response([FetchedPartition()] * count).session_id


@given(st.sets(INDEXES, min_size=1), STEPS)
def test_news_are_all_that_is_missing(first: set[int], steps: list[tuple[set[int], set[int], dict[int, str]]]) -> None:
    sessions, owner = FetchSessions(), Session("reader")
    truth = {index: FetchedPartition(partition_index=index, high_watermark=0) for index in range(6)}
    turn = sessions.turn(owner, FetchRequest(session_epoch=0, topics=topics(*sorted(first))), uses_ids=False)
    answer = turn.response([truth[index] for (_, _, index), _ in turn.asked])
    wanted, known, epoch = set(first), {index: truth[index] for index in first}, 1
    for added, forgotten, changes in steps:
        for index, change in changes.items():
            truth[index] = _changed(truth[index], change)
        request = FetchRequest(
            session_id=answer.session_id,
            session_epoch=epoch,
            topics=topics(*sorted(added)),
            forgotten_topics_data=(ForgottenTopic("t", NO_UUID, tuple(sorted(forgotten))),),
        )
        wanted = (wanted - forgotten) | added
        turn = sessions.turn(owner, request, uses_ids=False)
        assert {index for (_, _, index), _ in turn.asked} == wanted
        assert sessions.partitions == (len(wanted) if wanted else 0)
        answer = turn.response([truth[index] for (_, _, index), _ in turn.asked])
        told = [each for topic in answer.responses for each in topic.partitions]
        assert len({each.partition_index for each in told}) == len(told)
        known = {index: each for index, each in known.items() if index in wanted}
        known |= {each.partition_index: each for each in told}
        if not wanted:
            assert answer.session_id == 0
            return
        for index in wanted:
            assert known[index].high_watermark == truth[index].high_watermark
            assert known[index].log_start_offset == truth[index].log_start_offset
            if truth[index].error_code or truth[index].records:
                assert known[index] is truth[index]
        epoch += 1
    sessions.close(owner)
    assert sessions.partitions == 0


def _changed(old: FetchedPartition, change: str) -> FetchedPartition:
    end, start = old.high_watermark, old.log_start_offset
    if change == "fails":
        return FetchedPartition(partition_index=old.partition_index, error_code=3, high_watermark=-1)
    return FetchedPartition(
        partition_index=old.partition_index,
        high_watermark=end + (change == "grows"),
        log_start_offset=start + (change == "shrinks"),
        records=(b"records",) if change == "has records" else None,
    )


def test_what_had_records_comes_last_next_time() -> None:
    sessions, owner = FetchSessions(), Session("reader")
    turn = sessions.turn(owner, FetchRequest(session_epoch=0, topics=topics(0, 1, 2)), uses_ids=False)
    number = turn.response([FetchedPartition(records=(b"a",)), FetchedPartition(), FetchedPartition()]).session_id
    turn = sessions.turn(owner, FetchRequest(session_id=number, session_epoch=1), uses_ids=False)
    assert [index for (_, _, index), _ in turn.asked] == [1, 2, 0]


def test_idle_sessions_make_room_and_busy_ones_do_not() -> None:
    clock = Clock()
    sessions = FetchSessions(most_partitions=10, now=clock)
    first, second, third = Session("first"), Session("second"), Session("third")
    number = begin(sessions, first, 6)
    assert number
    assert begin(sessions, second, 6) == 0  # reads without one
    clock.now += EVICTION_S - 1
    sessions.turn(first, FetchRequest(session_id=number, session_epoch=1), uses_ids=False)
    clock.now += 2
    assert begin(sessions, second, 6) == 0
    assert sessions.partitions == 6
    clock.now += EVICTION_S
    assert begin(sessions, third, 6)
    assert sessions.partitions == 6
    with pytest.raises(Refused) as refused:
        sessions.turn(first, FetchRequest(session_id=number, session_epoch=2), uses_ids=False)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # One that grows beyond the limit ends, and its reader is told everything once more.
    assert third.fetching is not None
    grown = FetchRequest(session_id=third.fetching.number, session_epoch=1, topics=topics(*range(11)))
    turn = sessions.turn(third, grown, uses_ids=False)
    assert turn.response([FetchedPartition()] * 11).session_id == 0
    assert sessions.partitions == 0


def test_epochs_begin_again_at_one() -> None:
    sessions, owner = FetchSessions(), Session("reader")
    number = begin(sessions, owner, 1)
    assert owner.fetching is not None
    owner.fetching.epoch = 2**31 - 1
    for epoch in (2**31 - 1, 1, 2):
        sessions.turn(owner, FetchRequest(session_id=number, session_epoch=epoch), uses_ids=False)
