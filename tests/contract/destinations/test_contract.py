"""The contract of `destinations/base.py`, kept by every kind with a real backend."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from headgate.destinations.base import Lane, LocalDestination, SendResult, TopicDefaults
from headgate.model import DataError, Position, StateError, record
from tests.contract.destinations.arrivals import Arrival
from tests.contract.destinations.backends import SECRET, Backend

HOSTILE = [
    "../../outside",
    "..",
    "/etc/passwd",
    "a b",
    "x\r\nPUB other 1\r\n1",
    "*",
    ">",
    "$JS.API.STREAM.DELETE.X",
    "%2e%2e%2f",
    "a=b/c=d",
    "{topic}",
    "nul\x00byte",
    "",
    "__HIVE_DEFAULT_PARTITION__",
    "x" * 5000,
]


def rows(
    topics: str | Sequence[str],
    first: int = 0,
    count: int = 10,
    *,
    size: int = 1,
    keys: Sequence[bytes | None] | None = None,
    partitions: Sequence[int | None] | None = None,
) -> pa.RecordBatch:
    """Rows with rising ids; their payload says which they are."""
    names = [topics] * count if isinstance(topics, str) else list(topics)
    numbers = range(first, first + len(names))
    columns = {
        "_topic": pa.array(names, pa.string()),
        "_message_id": pa.array([f"db-{Position(number)}" for number in numbers], pa.string()),
        "_payload": pa.array([f"{number:0{size}d}".encode() for number in numbers], pa.binary()),
    }
    if keys is not None:
        columns["_partition_key"] = pa.array(keys, pa.binary())
    if partitions is not None:
        columns["_partition"] = pa.array(partitions, pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def one_key(topic: str, first: int = 0, count: int = 10) -> pa.RecordBatch:
    return rows(topic, first, count, keys=[b"k"] * count)


def number_of(arrival: Arrival) -> int:
    return int(arrival.payload[-9:])


def check(backend: Backend, found: list[Arrival], expected: Sequence[int]) -> None:
    """Exactly these rows, in this order, as far as the kind lets us see."""
    if backend.promises.keeps != "nothing":
        assert [number_of(arrival) for arrival in found] == list(expected)
    if backend.promises.keeps == "ids and payloads":
        assert [arrival.message_id for arrival in found] == [f"db-{Position(number)}" for number in expected]


def test_rows_arrive_completely_and_in_order(backend: Backend) -> None:
    topic = backend.topic("a")
    result = backend.deliver(one_key(topic, 0, 500), one_key(topic, 500, 1), one_key(topic, 501, 499))
    assert (result.destination, result.rows, result.duplicates, result.failures) == ("d", 1000, 0, ())
    check(backend, backend.arrived(None, topic), range(1000))


def test_batches_follow_each_other(backend: Backend) -> None:
    topic = backend.topic("a")
    for first in (0, 10, 20):
        backend.deliver(one_key(topic, first))
    check(backend, backend.arrived(None, topic), range(30))


def test_the_same_rows_again_are_dropped_or_known_by_their_ids(backend: Backend) -> None:
    topic = backend.topic("a")
    backend.deliver(one_key(topic))
    again = backend.deliver(one_key(topic))
    found = backend.arrived(None, topic)
    if backend.promises.replay == "dropped":
        check(backend, found, range(10))
        assert again.duplicates == (0 if backend.promises.whole_batches else 10)
    else:
        check(backend, found, [*range(10), *range(10)])
        assert again.duplicates == 0


def test_a_replay_goes_on_where_the_first_attempt_ended(backend: Backend) -> None:
    if backend.promises.replay != "dropped" or backend.promises.whole_batches:
        pytest.skip("it does not recognise single rows")
    keys = [b"%d" % (number % 7) for number in range(200)]
    topic = backend.topic("a")
    backend.deliver(rows(topic, 0, 120, keys=keys[:120]))
    result = backend.deliver(rows(topic, 0, 200, keys=keys))
    assert (result.rows, result.duplicates) == (200, 120)
    assert sorted(number_of(arrival) for arrival in backend.arrived(None, topic)) == list(range(200))


def test_a_replay_of_each_share_is_recognised_among_the_others(backend: Backend) -> None:
    """Two tasks send a batch between them, by turns, and are cut off at different rows."""
    if backend.promises.replay != "dropped" or not backend.destination.takes_shares:
        pytest.skip("it recognises no rows, or only in one order")
    topic = backend.topic("a")
    whole = rows(topic, 0, 300, keys=[b"%d" % (number % 7) for number in range(300)])
    first_id = whole.column(record.MESSAGE_ID)[100].as_py()

    def send(share: int, numbers: Sequence[int]) -> SendResult:
        told = {
            record.SHARE: f"key {share + 1}/2".encode(),
            record.BEHIND: first_id[: first_id.rindex("-") + 1].encode(),
        }
        part = whole.take(pa.array(numbers)).replace_schema_metadata(told)
        return backend.deliver(part, lane=Lane(task=share).sharing(part))

    backend.deliver(whole.slice(0, 100))
    even, odd = list(range(100, 300, 2)), list(range(101, 300, 2))
    send(0, even[:10])
    send(1, odd[:70])
    send(0, even[10:20])
    assert [send(1, odd).duplicates, send(0, even).duplicates] == [70, 20]
    assert sorted(number_of(arrival) for arrival in backend.arrived(None, topic)) == list(range(300))


def test_nothing_is_delivered_of_nothing(backend: Backend) -> None:
    empty = one_key(backend.topic("a"), 0, 0)
    result = backend.deliver(empty)
    assert (result.rows, result.payload_bytes, result.failures) == (0, 0, ())
    backend.deliver(empty, one_key(backend.topic("a"), 0, 3), empty)
    check(backend, backend.arrived(None, backend.topic("a")), range(3))


def test_large_and_tiny_payloads(backend: Backend) -> None:
    topic = backend.topic("a")
    batch = rows(topic, 0, 3, size=900_000, keys=[b"k"] * 3)
    result = backend.deliver(batch, rows(topic, 3, 1, keys=[b"k"]))
    found = backend.arrived(None, topic)
    check(backend, found, range(4))
    if backend.promises.keeps != "nothing":
        assert [len(arrival.payload) for arrival in found] == [900_000] * 3 + [1]
    if not backend.promises.local:
        assert result.payload_bytes == 2_700_001


def test_topics_stay_apart(backend: Backend) -> None:
    topics = [backend.topic(name) for name in ("a", "b", "c.d")]
    mixed = [topics[number % 3] for number in range(90)]
    backend.deliver(rows(mixed, keys=[b"k"] * 90))
    for number, topic in enumerate(topics):
        check(backend, backend.arrived(None, topic), range(number, 90, 3))


def test_streams_stay_apart(backend: Backend) -> None:
    if not backend.promises.streams:
        pytest.skip("it knows no streams")
    one, two = backend.stream("one"), backend.stream("two")
    backend.deliver(one_key("t", 0, 5), lane=Lane(one, epoch=7))
    backend.deliver(one_key("t", 5, 5), lane=Lane(two))
    check(backend, backend.arrived(one, "t"), range(5))
    check(backend, backend.arrived(two, "t"), range(5, 10))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_topics_arrive_as_they_are_or_are_refused(backend: Backend, text: str) -> None:
    if backend.kind == "console":
        pytest.skip("lines for people; a topic may hold a line break")
    failures: Sequence[dict[str, Any]] = ()
    try:
        failures = backend.deliver(one_key(text, 0, 2)).failures
    except (DataError, StateError):
        pass  # refused before anything was sent, or no stream takes it
    else:
        if not failures:
            check(backend, backend.arrived(None, text)[-2:], range(2))  # others may send there, too
    assert [failure["topic"] for failure in failures] in ([], [text])
    topic = backend.topic("good")
    backend.deliver(one_key(topic, 2, 2))
    check(backend, backend.arrived(None, topic), range(2, 4))


def test_rows_of_one_key_stay_in_order(backend: Backend) -> None:
    topic, count = backend.topic("a"), 300
    keys = [b"key %d" % (number % 11) if number % 5 else None for number in range(count)]
    backend.deliver(rows(topic, 0, count, keys=keys))
    found = backend.arrived(None, topic)
    if backend.promises.keeps == "nothing":
        return
    numbers = [number_of(arrival) for arrival in found]
    assert sorted(numbers) == list(range(count))
    for key in set(keys) - {None}:
        of_key = [number for number in numbers if keys[number] == key]
        assert of_key == sorted(of_key)
    places: dict[bytes | None, set[int | None]] = {}
    for arrival in found:
        places.setdefault(keys[number_of(arrival)], set()).add(arrival.partition)
    assert all(len(places[key]) == 1 for key in set(keys) - {None})


def test_an_explicit_partition_is_honoured(backend: Backend) -> None:
    if not backend.promises.partitions:
        pytest.skip("it knows no partitions")
    stream = backend.stream("s")
    backend.prepare(stream, {"t"})
    count = backend.destination.ensure_topic(stream, "t", TopicDefaults(partitions=4))
    asked = [number % count for number in range(20)]
    batch = rows("t", 0, 20, partitions=asked, keys=[b"ignored"] * 20)
    backend.deliver(batch, lane=Lane(stream, partitions={"t": count}))
    found = {number_of(arrival): arrival.partition for arrival in backend.arrived(stream, "t")}
    assert found == dict(enumerate(asked))


def test_a_topic_is_created_once(backend: Backend) -> None:
    stream = backend.stream("s") if backend.promises.streams else None
    topic = "t" if stream else backend.topic("t")
    backend.prepare(stream, {topic})
    defaults = TopicDefaults(partitions=2)

    def ensure(_: int) -> int:
        return backend.destination.ensure_topic(stream, topic, defaults)

    with ThreadPoolExecutor(2) as threads:
        counts = [*threads.map(ensure, range(2)), ensure(0)]
    assert len(set(counts)) == 1
    assert counts[0] >= 1
    assert backend.destination.missing(stream, topic) is None


def test_a_lane_left_with_an_error_drops_what_is_in_flight(backend: Backend) -> None:
    if isinstance(backend.destination, LocalDestination):
        pytest.skip("it takes whole batches")
    topic = backend.topic("a")
    backend.prepare(None, {topic})

    def leave() -> None:
        with backend.destination.open() as sender:
            sender.send(one_key(topic, 0, 5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    backend.deliver(one_key(topic, 5, 5))
    found = [number_of(arrival) for arrival in backend.arrived(None, topic)]
    if backend.promises.keeps != "nothing":
        assert found[-5:] == list(range(5, 10))
        assert found[:-5] == list(range(len(found) - 5))
    if backend.promises.whole_batches:
        assert len(found) == 5


def test_nothing_of_a_batch_is_seen_before_it_is_complete(backend: Backend) -> None:
    if not backend.promises.whole_batches:
        pytest.skip("it promises no such thing")
    topic = backend.topic("a")
    with backend.destination.open() as sender:
        sender.send(one_key(topic))
        result = sender.finish()
    assert backend.arrived(None, topic) == []
    backend.destination.complete(0, json.loads(json.dumps(result.reports)))
    check(backend, backend.arrived(None, topic), range(10))


def test_it_travels_before_and_after_use(backend: Backend) -> None:
    if isinstance(backend.destination, LocalDestination):
        pytest.skip("it stays in the driver")
    topic = backend.topic("a")
    backend.deliver(one_key(topic, 0, 1), to=pickle.loads(pickle.dumps(backend.destination)))
    backend.deliver(one_key(topic, 1, 1), to=pickle.loads(pickle.dumps(backend.destination)))
    check(backend, backend.arrived(None, topic), range(2))


def test_it_keeps_secrets(backend: Backend) -> None:
    destination = backend.with_secret()
    shown = f"{destination!r} {destination} {getattr(destination, 'options', '')!r} {destination.details()}"
    assert SECRET not in shown


def test_its_details_and_results_are_json(backend: Backend) -> None:
    result = backend.deliver(one_key(backend.topic("a")))
    assert json.loads(json.dumps(result.as_dict()))["rows"] == 10
    assert json.loads(json.dumps(backend.destination.details())) == backend.destination.details()
