"""Readers see every record once and in order, however reading, writing, rotation and restarts interleave."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.eventlog import Entry, LogOptions, LogReader, LogWriter, Record, Tail, follow
from headgate.eventlog.records import MAX_SEQ, encode, ends_with_record, find_record, measure

SMALL = LogOptions(segment_events=5, segment_bytes=400, max_age_s=0)


@contextmanager
def directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="eventlog-") as name:
        yield Path(name)


def read_on(tail: Tail, after: int, most: int) -> list[Record]:
    """A step of a reader: from memory where it can, else from the disk."""
    found = tail.recent(after, most)
    if found is not None:
        return found
    with tail.reader.cursor(after) as cursor:
        return cursor.read(most, tail.position)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 7), st.integers(0, 90)),
    st.tuples(st.just("poll"), st.integers(30, 500), st.just(0)),
    st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 300)),
    st.tuples(st.just("crash"), st.just(0), st.just(0)),
    st.tuples(st.just("scrub"), st.integers(0, 9), st.just(0)),
)


@given(st.lists(STEPS, max_size=40), st.integers(0, 600))
def test_disk_and_memory_join_without_gap_or_repeat(steps: list[tuple[str, int, int]], ring: int) -> None:
    with directory() as path, ExitStack() as opened:
        writer = LogWriter(path, SMALL)
        reader = opened.enter_context(LogReader(path))
        tail = opened.enter_context(Tail(reader, ring))
        written: list[Record] = []
        down: set[int] = set()
        polled: list[int] = []
        read: list[list[Record]] = [[], [], [], []]
        places = [0, 0, 0, 0]
        try:
            for step, first, second in [*steps, ("poll", 10_000, 0)]:
                match step:
                    case "append":
                        entries = [Entry(1, number, b"x" * second) for number in range(first)]
                        numbers = writer.append_all(entries)
                        written += [Record(seq, *entry) for seq, entry in zip(numbers, entries, strict=True)]  # type: ignore[arg-type]
                    case "poll":
                        polled += [record.seq for record in tail.poll(first)]
                    case "read":
                        found = read_on(tail, places[first], second)
                        read[first] += found
                        places[first] = found[-1].seq if found else tail.position
                    case "scrub":
                        writer.scrub(first)
                        down |= {record.seq for record in written if record.uid == first}
                    case _:
                        writer._release()  # as a crash does: nothing is given back
                        writer = LogWriter(path, SMALL)
            while records := tail.poll(100):
                polled += [record.seq for record in records]
            for number in range(4):
                while places[number] < tail.position:
                    found = read_on(tail, places[number], 100)
                    read[number] += found
                    places[number] = found[-1].seq if found else tail.position
        finally:
            writer.close()
        seqs = [record.seq for record in written]
        assert seqs == sorted(set(seqs))
        left = [seq for seq in seqs if seq not in down]
        assert [seq for seq in polled if seq not in down] == left
        for each in read:
            assert [record.seq for record in each if record.seq not in down] == left
            assert {record for record in each if record.seq not in down} == {r for r in written if r.seq not in down}
        with LogReader(path) as again:
            assert [record.seq for batch in again.read(0, 60) for record in batch] == left


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_readers_beside_a_busy_writer(seed: int) -> None:
    chance, count = random.Random(seed), 3000
    with directory() as path, LogWriter(path, LogOptions(segment_events=97)) as writer:

        def write() -> None:
            left = count
            while left:
                group = min(left, chance.randrange(1, 60))
                writer.append_all([Entry(1, 1, b"%d" % number) for number in range(group)])
                left -= group

        async def listen(after: int) -> list[int]:
            found: list[int] = []
            with LogReader(path) as reader:
                async for records in follow(reader, after, poll_s=0.0005):
                    found += [record.seq for record in records]
                    if found[-1] == count:
                        return found
            raise AssertionError

        async def listen_all() -> list[list[int]]:
            return await asyncio.gather(*map(listen, (0, 1, 50)))

        thread = threading.Thread(target=write)
        thread.start()
        found = asyncio.run(asyncio.wait_for(listen_all(), 30))
        thread.join()
    assert found == [list(range(first, count + 1)) for first in (1, 2, 51)]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
def test_records_are_found_where_they_are(payloads: list[bytes], data: st.DataObject) -> None:
    blob = b"".join(b"".join(encode(seq, 1, 0, payload)) for seq, payload in enumerate(payloads, 1))
    assert measure(blob, 0) == (len(payloads), len(payloads), len(blob))
    cut = data.draw(st.integers(0, len(blob)))
    extent = measure(blob[:cut], 0)
    assert extent.end <= cut
    assert blob[: extent.end] == b"".join(
        b"".join(encode(seq, 1, 0, payload)) for seq, payload in enumerate(payloads[: extent.events], 1)
    )
    assert ends_with_record(b"?" + blob, 0, MAX_SEQ)


@given(st.binary(max_size=300))
def test_any_bytes_are_measured(data: bytes) -> None:
    extent = measure(data, 0)
    assert 0 <= extent.end <= len(data)
    ends_with_record(data, 0, MAX_SEQ)
    assert (find_record(data, 0, 0) or 0) <= len(data)


@settings(max_examples=400)
@given(st.lists(st.binary(max_size=60), min_size=3, max_size=8), st.data())
def test_whatever_happens_to_a_record_the_others_are_found(payloads: list[bytes], data: st.DataObject) -> None:
    """Bytes of one record are changed, cut out or put in: it is missed, and no other is, nor is it read as another."""
    parts = [b"".join(encode(seq, 1, 0, payload)) for seq, payload in enumerate(payloads, 1)]
    which = data.draw(st.integers(1, len(parts) - 2))  # what is left of the first may look like one of before checksums
    harmed = bytearray(parts[which])
    place = data.draw(st.integers(0, len(harmed) - 1))
    harm = data.draw(st.sampled_from(["change", "cut", "add"]))
    if harm == "change":
        harmed[place] ^= 1 << data.draw(st.integers(0, 7))
    elif harm == "cut":
        del harmed[place : place + data.draw(st.integers(1, 40))]
    else:
        harmed[place:place] = data.draw(st.binary(min_size=1, max_size=40))
    if parts[which] in harmed or not harmed:  # a record that is gone altogether is a gap, as there may be
        return
    flags_only = harm == "change" and place == 0  # it may be called taken down, which is no lie about what it says
    with directory() as path:
        LogWriter(path).close()
        (path / "evts-0").write_bytes(b"".join([*parts[:which], bytes(harmed), *parts[which + 1 :]]))
        with LogReader(path) as reader, reader.cursor(0) as cursor:
            reader.head._word = lambda number: len(payloads) if number == 0 else 0  # type: ignore[method-assign]
            found: list[Record] = []
            while records := cursor.read(64):
                found += records
            expected = [Record(seq, 1, 0, payload) for seq, payload in enumerate(payloads, 1) if seq != which + 1]
            assert found == expected
            assert flags_only or cursor.damage
