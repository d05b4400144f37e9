"""Topics that are fenced, closed and moved to another cluster, as the log and its functions see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from headgate.commitlog.append import append
from headgate.wire.kafka.error_codes import ErrorCode
from tests.integration.commitlog.log_topics import batch, create
from tests.stock import both_servers


@pytest.fixture(params=both_servers)
def log_url(request: pytest.FixtureRequest, log_url: str) -> str:
    """On the embedded server and on Debian's."""
    return log_url if request.param == "embedded" else str(request.getfixturevalue("stock_log_url"))


def move(connection: psycopg.Connection, topic: str, state: str | None, link: str = "to-kafka") -> None:
    target = Jsonb({topic: {"cluster_id": "x"}} if state == "moved" else {})
    connection.execute("select kafka.move_topics(%s, array[%s], %s, %s)", [link, topic, state, target])


def error_of(connection: psycopg.Connection, part: int, sequence: int = -1, producer: int = -1) -> ErrorCode:
    epoch = 0 if producer >= 0 else -1
    (outcome,) = append(connection, [(part, batch(b"v", sequence=sequence, producer=producer, epoch=epoch))])
    return outcome.error


def test_a_fence_refuses_appends_and_leaves_other_topics_alone(connection: psycopg.Connection, topic: str) -> None:
    (fenced,), (free,) = create(connection, topic), create(connection, f"{topic}-free")
    move(connection, topic, "fenced")
    outcomes = append(connection, [(fenced, batch(b"a")), (free, batch(b"b")), (fenced, batch(b"c"))])
    assert [each.error for each in outcomes] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    move(connection, topic, None)
    assert error_of(connection, fenced) is ErrorCode.NONE


def test_a_retry_of_what_is_there_is_recognised_behind_the_fence(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    assert error_of(connection, part, 0, 77) is ErrorCode.NONE
    move(connection, topic, "fenced")
    assert error_of(connection, part, 0, 77) is ErrorCode.NONE  # it was written before
    assert error_of(connection, part, 1, 77) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    end = connection.execute("select next_offset from kafka.partitions where part_id = %s", [part]).fetchone()
    assert end == (1,)


def test_whoever_passes_fences_appends(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    move(connection, topic, "closed")
    with connection.transaction():
        connection.execute("set local kafka.passes = 'on'")
        assert error_of(connection, part) is ErrorCode.NONE
    assert error_of(connection, part) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fence_waits_for_an_append_that_has_begun(connection: psycopg.Connection, topic: str, log_url: str) -> None:
    (part,) = create(connection, topic)
    with psycopg.connect(log_url) as writer, ThreadPoolExecutor(1) as pool:
        (outcome,) = append(writer, [(part, batch(b"early"))])
        fencing = pool.submit(move, connection, topic, "fenced")
        waits = "select exists (select from pg_stat_activity where pid = %s and wait_event_type = 'Lock')"
        while writer.execute(waits, [connection.info.backend_pid]).fetchone() != (True,):
            assert not fencing.done()
        writer.commit()
        fencing.result(60)
    assert outcome.error is ErrorCode.NONE
    end = connection.execute("select next_offset from kafka.partitions where part_id = %s", [part]).fetchone()
    assert end == (1,)


@pytest.mark.parametrize(("state", "says"), [("fenced", "is moving"), ("closed", "is moving"), ("moved", "has moved")])
def test_sql_is_told_at_the_call(connection: psycopg.Connection, topic: str, state: str, says: str) -> None:
    create(connection, topic)
    move(connection, topic, state)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"{topic} {says} to another cluster"):
        connection.execute("select kafka.produce(%s, 'k', 'v')", [topic])


def test_a_publisher_needs_no_further_right(connection: psycopg.Connection, topic: str) -> None:
    create(connection, topic)
    role = sql.Identifier(f"app_{topic}")
    grants = (
        "create role {0}; grant usage on schema kafka to {0}; grant select on kafka.topics, kafka.partitions to {0};"
        "grant insert (topic_id, partition, key, value, headers), select (id) on kafka.inbox to {0}"
    )
    connection.execute(sql.SQL(grants).format(role))
    try:
        connection.execute(sql.SQL("set role {}").format(role))
        connection.execute("select kafka.produce(%s, 'k', 'v')", [topic])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            move(connection, topic, "fenced")
    finally:
        connection.execute("reset role")
        connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(role))


def test_one_link_moves_a_topic(connection: psycopg.Connection, topic: str) -> None:
    create(connection, topic)
    move(connection, topic, "fenced")
    with pytest.raises(psycopg.errors.ObjectInUse):
        move(connection, topic, None, link="another")
    move(connection, topic, "fenced")  # again, as after a crash
    move(connection, topic, None)


def test_a_closed_group_can_store_nothing_more(connection: psycopg.Connection, topic: str) -> None:
    connection.execute(
        "insert into kafka.group_leases (group_id, node_id, instance, epoch)"
        " values (%s, 1, gen_random_uuid(), nextval('kafka.group_epochs'))",
        [topic],
    )
    lease = "select epoch from kafka.group_leases where group_id = %s"
    before = connection.execute(lease, [topic]).fetchone()
    connection.execute("select kafka.close_groups('to-kafka', array[%s])", [topic])
    assert connection.execute(lease, [topic]).fetchone() != before
    connection.execute("select kafka.move_group(%s, 101, 'kafka.example', 9092)", [topic])
    found = connection.execute("select node_id, host, port from kafka.moved_groups where group_id = %s", [topic])
    assert found.fetchone() == (101, "kafka.example", 9092)
    connection.execute("select kafka.return_groups(array[%s])", [topic])
    assert not connection.execute("select from kafka.moved_groups where group_id = %s", [topic]).fetchall()
