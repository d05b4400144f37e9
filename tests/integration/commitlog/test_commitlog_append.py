"""`kafka.append`: offsets, sequences, and many who append at once."""

from __future__ import annotations

import multiprocessing
import threading

import psycopg
import pytest

from headgate.commitlog.append import append
from headgate.commitlog.read import read
from headgate.wire.kafka import read_records
from headgate.wire.kafka.error_codes import ErrorCode
from tests.integration.commitlog.log_topics import batch, create
from tests.stock import both_servers

OK = ErrorCode.NONE


@pytest.fixture(params=both_servers)
def log_url(request: pytest.FixtureRequest, log_url: str) -> str:
    """On the embedded server and on Debian's: plans differ by version and settings."""
    return log_url if request.param == "embedded" else str(request.getfixturevalue("stock_log_url"))


def offsets(connection: psycopg.Connection, topic: str) -> list[int]:
    rows = connection.execute('select "offset" from kafka.messages where topic = %s order by partition, 1', [topic])
    return [offset for (offset,) in rows]


def test_offsets_follow_each_other_in_every_partition(connection: psycopg.Connection, topic: str) -> None:
    first, second = create(connection, topic, 2)
    group = [(first, batch(b"a", b"b")), (second, batch(b"c")), (first, batch(b"d"))]
    assert [outcome.base_offset for outcome in append(connection, group)] == [0, 0, 2]
    assert [outcome.base_offset for outcome in append(connection, group)] == [3, 1, 5]
    assert offsets(connection, topic) == [0, 1, 2, 3, 4, 5, 0, 1]


def test_read(connection: psycopg.Connection, topic: str) -> None:
    """As Spark's tasks do."""
    (part,) = create(connection, topic)
    append(connection, [(part, batch(b"a", b"b")), (part, batch(b"c"))])
    found = read(connection, part, 1, 1 << 20)
    assert found is not None
    assert (found.next_offset, found.log_start_offset) == (3, 0)
    records = [record for stored in found.batches for record in read_records(stored.placed())]
    assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert read(connection, 2**30, 0, 1) is None


def test_an_offset_is_never_used_again(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    append(connection, [(part, batch(b"a", b"b", b"c"))])
    assert connection.execute("select * from kafka.delete_records(%s, -1)", [part]).fetchone() == (3, 3)
    assert offsets(connection, topic) == []
    assert append(connection, [(part, batch(b"d"))])[0].base_offset == 3
    with connection.transaction(force_rollback=True):
        assert append(connection, [(part, batch(b"never"))])[0].base_offset == 4
    assert append(connection, [(part, batch(b"e"))])[0].base_offset == 4
    assert offsets(connection, topic) == [3, 4]


def test_a_partition_that_is_gone_refuses_alone(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    found = append(connection, [(part, batch(b"a")), (2**30, batch(b"b")), (part, batch(b"c"))])
    assert [(outcome.error, outcome.base_offset) for outcome in found] == [
        (OK, 0),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (OK, 1),
    ]


def test_what_an_idempotent_producer_hears(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)

    def send(*sequences: int, epoch: int = 0, values: int = 1) -> list[tuple[ErrorCode, int]]:
        batches = [batch(*[b"v"] * values, producer=9, epoch=epoch, sequence=sequence) for sequence in sequences]
        found = append(connection, [(part, each) for each in batches])
        return [(outcome.error, outcome.base_offset) for outcome in found]

    out_of_order, fenced = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(5) == [(OK, 0)]  # unknown producers begin anywhere
    assert send(6, 7, 8) == [(OK, 1), (OK, 2), (OK, 3)]
    assert send(6, 8, 9, 11) == [(OK, 1), (OK, 3), (OK, 4), out_of_order]
    assert send(5) == [(OK, 0)]  # the fifth from the end
    assert send(10) == [(OK, 5)]
    assert send(5) == [out_of_order]  # forgotten
    assert send(10, values=2) == [out_of_order]  # not the same batch
    assert send(3, epoch=1) == [out_of_order]
    assert send(0, 1, epoch=1) == [(OK, 6), (OK, 7)]
    assert send(11) == [fenced]
    assert send(0, epoch=1) == [(OK, 6)]
    assert offsets(connection, topic) == list(range(8))


def test_sequences_begin_again_after_the_greatest(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    last = 2**31 - 1
    batches = [batch(b"a", b"b", producer=1, epoch=0, sequence=last - 1), batch(b"c", producer=1, epoch=0, sequence=0)]
    batches.append(batch(b"d", producer=1, epoch=0, sequence=1))
    assert [each.error for each in append(connection, [(part, each) for each in batches])] == [OK] * 3
    across = batch(b"e", b"f", b"g", producer=2, epoch=0, sequence=last)  # ends at 1
    after = batch(b"h", producer=2, epoch=0, sequence=2)
    assert [each.base_offset for each in append(connection, [(part, across), (part, after)])] == [4, 7]
    assert [each.base_offset for each in append(connection, [(part, across), (part, after)])] == [4, 7]


def _append_often(url: str, parts: list[int], name: bytes, times: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for turn in range(times):
            append(connection, [(part, batch(b"%s %d" % (name, turn), b"-")) for part in parts])


def test_many_at_once_leave_no_gaps_and_readers_miss_nothing(
    connection: psycopg.Connection, log_url: str, topic: str
) -> None:
    """Also for a reader who only asks for what is new by the global offset."""
    parts = create(connection, topic, 2)
    writers = [threading.Thread(target=_append_often, args=(log_url, parts, b"w%d" % i, 25)) for i in range(4)]
    before = connection.execute("select next_offset from kafka.states where part_id = 0").fetchone()
    assert before is not None
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while len(seen) < 4 * 25 * 2 * 2:
        last = seen[-1] if seen else before[0] - 1
        rows = connection.execute(
            "select global_offset from kafka.messages where global_offset > %s order by 1", [last]
        )
        seen += [number for (number,) in rows]
    for writer in writers:
        writer.join()
    assert seen == list(range(before[0], before[0] + len(seen)))
    assert offsets(connection, topic) == [*range(200), *range(200)]
    rows = connection.execute(
        'select value from kafka.messages where topic = %s and partition = 0 order by "offset"', [topic]
    )
    values = [bytes(value) for (value,) in rows if value != b"-"]
    for i in range(4):
        assert [value for value in values if value.startswith(b"w%d" % i)] == [b"w%d %d" % (i, n) for n in range(25)]


def _send_same(url: str, part: int, answers: multiprocessing.Queue[list[int]]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        found = [append(connection, [(part, batch(b"x", producer=3, epoch=0, sequence=n))])[0] for n in range(5)]
    answers.put([outcome.base_offset for outcome in found if outcome.error is OK])


def test_duplicates_across_processes_get_the_first_offset(
    connection: psycopg.Connection, log_url: str, topic: str
) -> None:
    (part,) = create(connection, topic)
    spawn = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[list[int]] = spawn.Queue()
    processes = [spawn.Process(target=_send_same, args=(log_url, part, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert found == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    assert offsets(connection, topic) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_durable", [True, False], ids=["durable", "asynchronous"])
def test_durability_is_for_one_append_only(connection: psycopg.Connection, topic: str, is_durable: bool) -> None:
    (part,) = create(connection, topic)
    assert append(connection, [(part, batch(b"a"))], is_durable=is_durable)[0].error is OK
    assert connection.execute("show synchronous_commit").fetchone() == ("on",)
