"""What a gateway knows of aborted transactions from the batches in its memory is what the log knows."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.commitlog.read import Isolation, Stored
from headgate.gateway.store.tails import Tails
from headgate.wire.kafka import Record, encode_batch, placed, read_batch_header, read_records, split_batches
from headgate.wire.kafka.markers import end_marker

Step = tuple[str, int]  # what a producer does: write, plain, commit, abort


class Placed(NamedTuple):
    base: int
    last: int
    data: memoryview


steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "plain", "commit", "abort"]), st.integers(1, 2)),
    min_size=4,
    max_size=40,
)


def log_of(done: list[Step]) -> tuple[list[Placed], set[bytes], int]:
    """A log, the values of it that are committed, and how far it is stable."""
    batches: list[Placed] = []
    begun: dict[int, tuple[int, list[bytes]]] = {}
    committed: set[bytes] = set()
    offset = 0

    def put(data: bytes, count: int) -> None:
        nonlocal offset
        batches.append(Placed(offset, offset + count - 1, memoryview(data)))
        offset += count

    for number, (what, producer) in enumerate(done):
        values = [b"%d-%d" % (number, at) for at in range(1 + number % 2)]
        records = [Record(at, 0, b"k", value) for at, value in enumerate(values)]
        if what == "plain":
            committed |= set(values)
            put(encode_batch(records), len(values))
        elif what == "write":
            begun.setdefault(producer, (offset, []))[1].extend(values)
            put(
                encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True),
                len(values),
            )
        else:
            _, written = begun.pop(producer, (0, []))
            committed |= set(written) if what == "commit" else set()
            put(end_marker(producer, 0, committed=what == "commit", timestamp=0), 1)
    return batches, committed, min((first for first, _ in begun.values()), default=offset)


def shown(data: bytes, aborted: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """As clients do it."""
    isolation = Isolation(aborted)
    found = []
    for header, batch in split_batches(data):
        if isolation.shows(Stored(header.base_offset, header.last_offset, bytes(batch))):
            found += [(record.offset, record.value or b"") for record in read_records(batch)]
    return found


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(0, 3), st.floats(0, 1), st.integers(200, 20_000), st.sampled_from([1500, 10**6]))
def test_memory_shows_what_is_committed(
    done: list[Step], skipped: int, share: float, max_bytes: int, cache_bytes: int
) -> None:
    """From any offset that is in memory, whatever part of the log that is, and however much is asked for."""
    batches, committed, stable = log_of(done)
    tails = Tails(cache_bytes)
    for place in batches[skipped:]:
        tails.appended(1, *place)
        tails.moved(1, place.last + 1, 0, min(stable, place.last + 1))
    tail = tails.get(1)
    first = tail.batches[tail.cut][0] if tail.batches[tail.cut :] else stable
    offset = first + int(share * (stable - first))
    if offset >= stable:
        return
    assert tail.has(offset)
    buffers, _, stop = tail.cached(offset, stable, max_bytes, is_first=True)
    wanted = [
        (record.offset, record.value)
        for base, last, data in batches
        if last >= offset and last < stop and not read_batch_header(data).is_control
        for record in read_records(placed(data, base, 0))
        if record.value in committed
    ]
    assert wanted or stop > offset
    assert shown(b"".join(buffers), tail.aborts.among(offset, stop)) == wanted
