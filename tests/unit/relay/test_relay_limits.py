"""Rates, pauses and room: numbers that wait."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.relay.limits import Buckets, host_rates
from headgate.relay.options import HoldLimits
from headgate.relay.track import HostRead, Item, Room, Track
from headgate.runtime.backoff import backoff_s
from headgate.wire.atproto import Kind


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    per_s=st.floats(1, 1000),
    per_hour=st.floats(10, 100_000),
    gaps=st.lists(st.floats(0, 10), min_size=1, max_size=200),
)
def test_whoever_waits_as_told_never_exceeds_a_rate(per_s: float, per_hour: float, gaps: list[float]) -> None:
    clock = Clock()
    rates = ((per_s, 1.0), (per_hour, 3600.0))
    buckets = Buckets(rates, clock)
    for count, gap in enumerate(gaps, 1):
        clock.now += gap
        clock.now += buckets.take()
        for size, seconds in rates:
            assert count <= size + clock.now * size / seconds + 1e-6


def test_nobody_waits_below_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(((10.0, 1.0),), clock)
    assert [buckets.take() for _ in range(10)] == [0.0] * 10
    assert buckets.take() == pytest.approx(0.1)
    clock.now += 60
    assert [buckets.take() for _ in range(10)] == [0.0] * 10


def test_the_rates_of_a_host_grow_with_its_accounts() -> None:
    assert host_rates(1_000, trusted=False) == ((51.0, 1.0), (3_500.0, 3_600.0), (30_000.0, 86_400.0))
    assert host_rates(1_000, trusted=True)[0] == (5_000.0, 1.0)


def test_pauses_are_seconds_that_double() -> None:
    bounds = (1.0, 300.0)
    assert [backoff_s(failures, bounds, 0.0) for failures in (1, 2, 3, 8, 9, 10, 10_000)] == [
        1,
        2,
        4,
        128,
        256,
        300,
        300,
    ]
    assert backoff_s(5, bounds, 1.0) == 8.0


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_a_pause_is_never_shorter_than_half_of_the_one_before_it(failures: int, chance: float) -> None:
    assert backoff_s(failures, (1.0, 300.0), chance) >= min(300.0, 2.0 ** min(failures - 1, 60)) / 2


def item(seq: int, round_: int = 0) -> Item:
    return Item("h", Kind.COMMIT, "did:plc:x", seq, b"", 0.0, round_)


@given(order=st.permutations(range(1, 9)))
def test_a_cursor_never_passes_what_is_pending(order: list[int]) -> None:
    track = Track()
    items = {seq: item(seq * 3) for seq in range(1, 9)}  # numbers may have gaps
    for one in items.values():
        track.pending[one] = None
        track.last = one.seq
    for seq in order:
        before = track.cursor
        track.done(items.pop(seq))
        assert before <= track.cursor
        assert all(track.cursor < one.seq for one in items.values())
    assert track.cursor == 24


def test_what_is_left_of_an_older_count_does_not_matter() -> None:
    track = Track()
    old = item(900)
    track.pending[old], track.last = None, 900
    track.restart(0)
    new = item(1, track.round)
    track.pending[new], track.last = None, 1
    track.done(old)
    assert track.cursor == 0
    track.done(new)
    assert track.cursor == 1


def test_room_is_per_host_and_in_all_and_everybody_gets_a_turn() -> None:
    async def test() -> None:
        room = Room(HoldLimits(host_events=3, host_bytes=100, events=5, bytes=1_000))
        greedy, other, late = Track(), Track(), Track()
        for _ in range(3):
            await room.enter(greedy, 10)
        waiting = asyncio.create_task(room.enter(greedy, 10))
        for _ in range(2):
            await room.enter(other, 10)
        await room.enter(late, 10)  # all is full, but it has nothing yet
        also = asyncio.create_task(room.enter(late, 10))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not also.done()
        for _ in range(3):
            room.leave(greedy, 10)
        room.leave(late, 10)
        await asyncio.gather(waiting, also)
        assert (room.events, room.bytes, greedy.events, late.events) == (4, 40, 1, 1)

    asyncio.run(asyncio.wait_for(test(), 5))


def test_room_is_also_counted_in_bytes() -> None:
    room = Room(HoldLimits(host_events=100, host_bytes=100, events=100, bytes=150))
    first, second = Track(), Track()
    asyncio.run(room.enter(first, 90))
    assert not room.fits(first, 20)
    assert room.fits(second, 10_000)  # else it could never be sent at all
    asyncio.run(room.enter(second, 55))
    assert not room.fits(second, 10)


@given(st.lists(st.integers(1, 40), unique=True), st.integers(0, 40), st.sets(st.integers(1, 40)), st.integers(0, 40))
def test_what_was_read_before_is_known_and_nothing_else(
    order: list[int], last: int, pending: set[int], cursor: int
) -> None:
    """A relay that ends at any moment, once more, leaves to the next one exactly what both have dealt with."""
    pending = {seq for seq in pending if seq <= last}
    before = HostRead(last, pending, {last + 2, last + 5})
    track = Track(last=cursor, read_before=before)
    taken: set[int] = set()
    for seq in sorted(order):
        if seq > cursor and not track.was_read(seq):
            assert not before.has(seq)
            track.last = seq
            taken.add(seq)
            if seq % 2:
                track.pending[item(seq)] = None
    left = track.read
    passed = {seq for seq in range(1, 50) if seq <= track.last or before.has(seq)}
    assert {seq for seq in range(1, 50) if left.has(seq)} == passed - {seq for seq in taken if seq % 2}
