"""The rules by which a stream follows on another, without any server."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.model import ProtocolError
from headgate.postgres.continuity import (
    Memory,
    Now,
    TimelineHistory,
    WalPosition,
    Witness,
    judge,
    position_of,
    read_history,
    remember,
)

FIRST = TimelineHistory(1)
SECOND = TimelineHistory(2, ((1, 1000),))
MEMORY = Memory("7", 5, "s", 1, confirmed_lsn=900, began_lsn=100, witness=Witness(880, 42))
NOW = Now("s", "7", 5, FIRST, server_lsn=950, slot_lsn=900)


def changed(**changes: Any) -> Now:
    return dataclasses.replace(NOW, **changes)


def test_what_goes_on_where_it_ended_is_fine() -> None:
    assert judge(MEMORY, NOW, 880) is None
    assert judge(MEMORY, changed(slot_lsn=300), 880) is None  # a crash of the server may set it back


@pytest.mark.parametrize(
    ("now", "reason", "words"),
    [
        (changed(slot="other"), "slot", "was read into this directory before"),
        (changed(system_id="8"), "slot", "another server"),
        (changed(database_oid=6), "slot", "database"),
        (changed(slot_lsn=None), "slot", "the slot is gone"),
        (changed(slot_lsn=901), "slot", "moved it or made it anew"),
        (changed(server_lsn=899), "timeline", "restored from a backup"),
        (changed(history=TimelineHistory(3, ((2, 500),))), "timeline", "does not descend"),
        (changed(history=SECOND, slot_lsn=950), "slot", "moved it or made it anew"),
    ],
)
def test_what_does_not_follow_is_refused(now: Now, reason: str, words: str) -> None:
    gap = judge(MEMORY, now, 880)
    assert gap is not None
    assert (gap.reason, gap.may_go_on) == (reason, False)
    assert words in gap.message
    assert "headgate reset" in gap.refusal("s").remedy


def test_an_older_server_that_is_back_is_refused() -> None:
    later = msgspec.structs.replace(MEMORY, timeline=2)
    gap = judge(later, NOW, 880)
    assert gap is not None
    assert not gap.may_go_on


@pytest.mark.parametrize(("handed_lsn", "is_told"), [(880, False), (1000, False), (1001, True)])
def test_a_new_primary_that_lacks_what_was_delivered_goes_on_and_tells(handed_lsn: int, is_told: bool) -> None:
    gap = judge(MEMORY, changed(history=SECOND, slot_lsn=850), handed_lsn)
    assert (gap is not None and gap.may_go_on) == is_told


def test_an_idle_confirmation_ahead_of_a_standby_is_no_loss() -> None:
    """Far ahead of the last transaction, because nothing came for a while."""
    memory = msgspec.structs.replace(MEMORY, confirmed_lsn=2000)
    now = changed(history=SECOND, slot_lsn=990)
    assert judge(memory, now, 880) is None
    kept = remember(memory, now)
    assert (kept.timeline, kept.confirmed_lsn, kept.witness) == (2, 1000, MEMORY.witness)


def test_a_memory_begins_where_the_slot_stands() -> None:
    fresh = remember(None, NOW)
    assert (fresh.confirmed_lsn, fresh.began_lsn, fresh.timeline) == (900, 900, 1)


def test_offsets_of_before_timelines_lie_on_the_servers_own() -> None:
    assert SECOND.here(position_of({"lsn": 5000})) == 5000
    assert SECOND.here(position_of({"lsn": 5000, "timeline": 1})) == 1000
    assert SECOND.here(position_of({"lsn": 5000, "timeline": 2})) == 5000


lsns = st.integers(0, 2**64 - 1)


@st.composite
def histories(draw: st.DrawFn) -> TimelineHistory:
    ends = sorted(draw(st.lists(lsns, max_size=5, unique=True)))
    return TimelineHistory(len(ends) + 1, tuple(enumerate(ends, 1)))


@given(histories(), lsns, lsns)
def test_places_keep_their_order_within_a_history(history: TimelineHistory, a: int, b: int) -> None:
    """Where two records of one history stand is told by timeline and LSN, and by the LSN alone."""
    first, second = (WalPosition(history.timeline_of(lsn), lsn) for lsn in (a, b))
    assert (first < second) == (a < b)
    assert history.here(first) == a


@given(histories())
def test_a_history_is_read_back(history: TimelineHistory) -> None:
    lines = [
        f"{number}\t{end >> 32:X}/{end & 0xFFFFFFFF:X}\tno recovery target specified" for number, end in history.ends
    ]
    content = "\n\n".join(["# comment", *lines]).encode()
    assert read_history(history.current, content) == history


@pytest.mark.parametrize("content", [b"x 0/1 y", b"1", b"1 nonsense", b"\xff\xfe 0/1", b"1 0/G"])
def test_a_damaged_history_is_our_error(content: bytes) -> None:
    with pytest.raises(ProtocolError, match="timeline history"):
        read_history(2, content)
