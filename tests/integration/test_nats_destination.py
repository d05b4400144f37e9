"""The `nats` destination against a real server: replays, a second writer, and rows larger than a message."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from headgate.destinations.base import Lane, SendResult, TopicDefaults
from headgate.destinations.nats import JetStream, NatsDestination, NatsOptions, chains
from headgate.embedded import Endpoints
from headgate.model import DeliveryError, HeadgateError, OccupiedError, Position, ProtocolError, Retry, record
from headgate.pipeline.dispatch import ensure_all
from headgate.wire.nats.fragments import FRAGMENT_HEADER, FragmentJoiner
from tests.streams import read_stream


@pytest.fixture
def options(endpoints: Endpoints) -> NatsOptions:
    name = f"D{uuid.uuid4().hex[:8]}"
    assert endpoints.nats_url is not None
    # Without a window for message ids, only the destination itself can recognise a replay.
    return NatsOptions(url=endpoints.nats_url, stream=name, subjects=(f"{name}.>",), duplicate_window_s=0.1)


def rows(options: NatsOptions, first: int, count: int, origin: str = "db", size: int = 10) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "_topic": pa.array([f"{options.stream}.t"] * count),
            "_message_id": pa.array([f"{origin}-{Position(number)}" for number in numbers]),
            "_payload": pa.array([f"{number:0{size}d}".encode() for number in numbers], pa.binary()),
        }
    )


def send(destination: NatsDestination, *batches: pa.RecordBatch) -> SendResult:
    destination.ensure()
    with destination.open() as sender:
        for batch in batches:
            sender.send(batch)
        return sender.finish()


def payloads(options: NatsOptions, expected: int) -> list[bytes]:
    joiner = FragmentJoiner()
    whole = (
        joiner.feed(message.data, (message.headers or {}).get(FRAGMENT_HEADER))
        for message in read_stream(options.url, options.stream, expected)
    )
    return [payload for payload in whole if payload is not None]


def test_a_replay_is_recognised_whatever_the_outage_lasted(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    assert send(destination, rows(options, 0, 100)).duplicates == 0
    result = send(destination, rows(options, 50, 60), rows(options, 110, 40))
    assert (result.rows, result.duplicates) == (100, 50)
    assert [int(payload) for payload in payloads(options, 150)] == list(range(150))


def test_another_origin_on_the_stream_is_refused(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 3, origin="other"))
    with pytest.raises(OccupiedError, match="somebody else writes"):
        send(destination, rows(options, 3, 3))


def test_a_second_writer_is_fenced_off(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 5))
    with destination.open() as zombie:
        zombie.send(rows(options, 5, 5))
        zombie.finish()
        with JetStream.open(options) as jetstream:
            jetstream.publish(f"{options.stream}.t", b"in between")
        zombie.send(rows(options, 10, 5))
        refused = zombie.finish().failures
    assert [failure["error"]["kind"] for failure in refused] == ["state"]
    assert len(payloads(options, 11)) == 11


def go_on(destination: NatsDestination, batch: pa.RecordBatch) -> SendResult:
    """Right behind what this process sent last."""
    with destination.open(Lane(goes_on=True)) as sender:
        sender.send(batch)
        return sender.finish()


def test_a_lane_that_goes_on_begins_where_the_last_one_ended(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 5))
    assert go_on(destination, rows(options, 5, 5)).failures == ()
    result = go_on(destination, rows(options, 8, 4))  # some of it again
    assert (result.failures, result.duplicates) == ((), 2)
    assert [int(payload) for payload in payloads(options, 12)] == list(range(12))


def test_a_lane_that_goes_on_is_fenced_off_as_well(options: NatsOptions) -> None:
    """It takes its own word for where the stream ends; if somebody else wrote there, nothing of it is stored."""
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 5))
    with JetStream.open(options) as jetstream:
        jetstream.publish(f"{options.stream}.t", b"in between")
    refused = go_on(destination, rows(options, 5, 5)).failures
    assert [failure["error"]["kind"] for failure in refused] == ["state"]
    assert len(payloads(options, 6)) == 6
    with pytest.raises(OccupiedError, match="somebody else writes"):
        go_on(destination, rows(options, 5, 5))  # what it remembered is forgotten, and it looks


def test_a_lane_that_goes_on_notices_a_stream_that_was_deleted(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 5))
    with JetStream.open(options) as jetstream:
        jetstream.delete_stream(options.stream)
    destination.ensure()
    assert go_on(destination, rows(options, 5, 5)).failures
    send(destination, rows(options, 5, 5))
    assert [int(payload) for payload in payloads(options, 5)] == list(range(5, 10))


def test_a_stream_deleted_meanwhile_is_made_again_and_told(
    options: NatsOptions, caplog: pytest.LogCaptureFixture
) -> None:
    for exclusive in (True, False):
        destination = NatsDestination("d", options, exclusive=exclusive)
        send(destination, rows(options, 0, 5))
        with JetStream.open(options) as jetstream:
            jetstream.delete_stream(options.stream)
        assert _error(destination, rows(options, 5, 5)).retry is Retry.BACKOFF
        caplog.clear()
        ensure_all([destination], have_rows=True)
        (told,) = [record for record in caplog.records if "was deleted" in record.getMessage()]
        assert options.stream in told.getMessage()
        send(destination, rows(options, 5, 5))
        assert [int(payload) for payload in payloads(options, 5)] == list(range(5, 10))
        caplog.clear()
        ensure_all([destination], have_rows=True)
        assert not caplog.records
        with JetStream.open(options) as jetstream:
            jetstream.delete_stream(options.stream)


def _error(destination: NatsDestination, batch: pa.RecordBatch) -> HeadgateError:
    """What the destination says of a batch that it cannot store."""
    try:
        with destination.open() as sender:
            sender.send(batch)
            (failure,) = sender.finish().failures
    except DeliveryError as error:
        return error
    found = HeadgateError.from_text(f"headgate-error: {json.dumps(failure['error'])}")
    assert isinstance(found, DeliveryError)
    return found


def test_a_first_run_tells_of_no_deletion(options: NatsOptions, caplog: pytest.LogCaptureFixture) -> None:
    ensure_all([NatsDestination("d", options, exclusive=True)])
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_full_stream_refuses_or_drops_as_told(options: NatsOptions) -> None:
    own = NatsDestination("d", replace(options, max_bytes=20_000), exclusive=True)
    own.ensure()
    with own.open() as sender:
        sender.send(rows(options, 0, 30, size=1000))
        refused = sender.finish().failures
    assert {failure["error"]["kind"] for failure in refused} == {"capacity"}
    dropping = NatsDestination("d", replace(options, max_bytes=20_000, discard="old"), exclusive=True)
    send(dropping, rows(options, 0, 30, size=1000))
    with JetStream.open(options) as jetstream:
        info = jetstream.stream_info(options.stream)
    assert info
    assert info.first_sequence > 1
    assert info.last_sequence == 30


def test_a_row_larger_than_a_message_travels_in_parts(options: NatsOptions) -> None:
    big = 3_000_000
    destination = NatsDestination("d", options, exclusive=True)
    batch = rows(options, 0, 3, size=big)
    assert send(destination, batch).rows == 3
    result = send(destination, batch, rows(options, 3, 1))
    assert result.duplicates == 9  # every part is recognised
    found = payloads(options, 10)
    assert [len(payload) for payload in found] == [big, big, big, 10]
    assert [int(payload[-10:]) for payload in found] == [0, 1, 2, 3]


def test_a_replay_goes_on_in_the_middle_of_a_row(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    batch = rows(options, 0, 1, size=3_000_000)
    send(destination, batch)
    with JetStream.open(options) as jetstream:
        whole = [jetstream.message(options.stream, number) for number in (1, 2, 3)]
        jetstream.delete_stream(options.stream)
        jetstream.ensure_stream(options)
        first = whole[0]
        assert first is not None
        headers = (("Nats-Msg-Id", first.message_id), (FRAGMENT_HEADER, "1/3"))
        jetstream.publish(first.subject, first.payload, headers)
    send(destination, batch)
    assert [len(payload) for payload in payloads(options, 3)] == [3_000_000]


@pytest.mark.parametrize("chunk", ["2/3", "x/3", "1", "0/2", ""])
def test_parts_out_of_order_are_refused(chunk: str) -> None:
    with pytest.raises(ProtocolError):
        FragmentJoiner().feed(b"x", chunk)


# Each message names the one before it of its table ------------------------------------------------------------


def events(options: NatsOptions, first: int, tables: str, size: int = 10) -> pa.RecordBatch:
    """A row for each letter, on the table of that name, by different operations."""
    batch = rows(options, first, len(tables), size=size)
    topics = [f"{options.stream}.{table}.{('insert', 'update')[at % 2]}" for at, table in enumerate(tables)]
    return batch.set_column(0, "_topic", pa.array(topics))


def chained(options: NatsOptions, expected: int) -> list[tuple[int, int]]:
    """What the header of each message says, and what it should: both counted from the messages alone."""
    last: dict[str, int] = {}
    found = []
    for sequence, message in enumerate(read_stream(options.url, options.stream, expected), 1):
        table = message.subject.rsplit(".", 1)[0]
        found.append((int((message.headers or {})["Headgate-Previous"]), last.get(table, 0)))
        last[table] = sequence
    return found


@pytest.mark.parametrize("zstd", [False, True])
def test_each_message_names_the_one_before_it_of_its_table(options: NatsOptions, zstd: bool) -> None:
    destination = NatsDestination("d", options, exclusive=True, zstd=zstd)
    send(destination, events(options, 0, "abacca"), events(options, 6, "ddab"))
    send(destination, events(options, 8, "abbde", size=1_500_000))  # two of them again, the rest in parts
    chains._kept.clear()  # as in another process
    send(destination, events(options, 13, "eadb"))
    found = chained(options, 6 + 4 + 3 * 2 + 4)
    assert [said for said, _ in found] == [real for _, real in found]


def test_a_stream_shared_with_others_says_nothing_of_predecessors(options: NatsOptions) -> None:
    send(NatsDestination("d", options), rows(options, 0, 3))
    assert all("Headgate-Previous" not in (m.headers or {}) for m in read_stream(options.url, options.stream, 3))


def test_the_last_message_deleted_stands_for_one_that_nobody_remembers(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, events(options, 0, "aabba"))
    with JetStream.open(options) as jetstream:
        jetstream.purge_stream(options.stream, f"{options.stream}.b.>")
        send(destination, events(options, 5, "b"))  # remembered: the fourth
        jetstream.purge_stream(options.stream, f"{options.stream}.b.>")
        chains._kept.clear()
        send(destination, events(options, 6, "bac"))
        previous = [
            int(message.headers.get("Headgate-Previous"))
            for sequence in (7, 8, 9)
            if (message := jetstream.message(options.stream, sequence)) is not None
        ]
    assert previous == [6, 6, 6]


def test_what_failed_is_no_predecessor(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, events(options, 0, "ab"))
    with destination.open() as sender:
        sender.send(events(options, 2, "a"))
        assert not sender.finish().failures
        with JetStream.open(options) as jetstream:
            jetstream.publish(f"{options.stream}.a.insert", b"", (("Nats-Msg-Id", f"db-{Position(2, 1)}"),))
        sender.send(events(options, 3, "ab"))
        assert sender.finish().failures
    send(destination, events(options, 3, "ab"))
    with JetStream.open(options) as jetstream:
        stored = [jetstream.message(options.stream, sequence) for sequence in (5, 6)]
    assert [each and each.headers.get("Headgate-Previous") for each in stored] == ["4", "2"]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("kept", [".a", ".a.>", ".a.0"])
@pytest.mark.parametrize("named", [False, True])
def test_what_is_foretold_of_a_topic_is_what_happens(
    options: NatsOptions, partitions: int, kept: str, named: bool
) -> None:
    """Partitions are subjects below the topic's, and the stream may keep these, or that, or both."""
    options = replace(options, subjects=(f"{options.stream}{kept}",))
    destination = NatsDestination("d", options)
    destination.ensure()
    # A stream that a row names is there already, as somebody else wants it.
    asked = (
        replace(destination, options=replace(options, stream="OTHER", subjects=("other",))) if named else destination
    )
    stream, topic = (options.stream, "a") if named else (None, f"{options.stream}.a")
    defaults = TopicDefaults(partitions=partitions)

    def foretold() -> int:
        assert asked.missing(stream, topic) is None
        return asked.partition_count(stream, topic, defaults)

    def outcome(ask: Callable[[], int]) -> int | str:
        try:
            return ask()
        except DeliveryError as error:
            return str(error)

    assert outcome(foretold) == outcome(lambda: asked.ensure_topic(stream, topic, defaults))


def of_share(rows: pa.RecordBatch, share: str, behind: int) -> pa.RecordBatch:
    told = {record.SHARE: share.encode(), record.BEHIND: f"db-{behind:016X}-".encode()}
    return rows.replace_schema_metadata(told)


def send_share(destination: NatsDestination, share: str, numbers: list[int], behind: int = 0) -> SendResult:
    every = of_share(rows(destination.options, 0, 1000), share, behind).take(pa.array(numbers))
    with destination.open(Lane().sharing(every)) as sender:
        sender.send(every)
        return sender.finish()


def test_a_replay_of_shares_is_recognised_whatever_the_outage_lasted(options: NatsOptions) -> None:
    """One share came further than the other when both were cut off; what each has sent is found among the other's."""
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 200))
    even, odd = list(range(200, 400, 2)), list(range(201, 400, 2))
    send_share(destination, "key 1/2", even[:10], 200)
    send_share(destination, "key 2/2", odd[:70], 200)
    send_share(destination, "key 1/2", even[10:20], 200)
    again = send_share(destination, "key 2/2", odd, 200), send_share(destination, "key 1/2", even, 200)
    assert [result.duplicates for result in again] == [70, 20]
    assert sorted(int(payload) for payload in payloads(options, 400)) == list(range(400))


def test_a_share_finds_its_place_in_a_stream_with_gaps(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 100))
    send_share(destination, "key 1/1", [100, 101, 102], 100)
    with JetStream.open(options) as jetstream:
        for sequence in (1, 2, 50, 51, 75, 100, 102):
            jetstream._call(f"STREAM.MSG.DELETE.{options.stream}", {"seq": sequence})
        assert jetstream.message_ids(options.stream, f"db-{100:016X}-") == {f"db-{Position(n)}" for n in (100, 102)}
        assert jetstream.message_ids(options.stream, f"db-{103:016X}-") == set()


def test_a_share_of_another_origin_is_refused(options: NatsOptions) -> None:
    destination = NatsDestination("d", options, exclusive=True)
    send(destination, rows(options, 0, 3, origin="other"))
    with pytest.raises(OccupiedError, match="somebody else writes"):
        send_share(destination, "key 1/2", [3, 4])
