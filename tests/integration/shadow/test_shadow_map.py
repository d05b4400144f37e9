"""The map of a mirror in SQL: every offset, both ways, over gaps."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import psycopg
import pytest

from headgate.commitlog.append import append
from tests.integration.commitlog.log_topics import batch, create
from tests.stock import both_servers

LINK = "mirror"


@pytest.fixture(params=both_servers)
def log_url(request: pytest.FixtureRequest, log_url: str) -> str:
    """On the embedded server and on Debian's: plans differ by version and settings."""
    return log_url if request.param == "embedded" else str(request.getfixturevalue("stock_log_url"))


def uuid_of(connection: psycopg.Connection, topic: str) -> UUID:
    row = connection.execute("select uuid from kafka.topics where name = %s", [topic]).fetchone()
    return row[0] if row else uuid4()


def start(connection: psycopg.Connection, topic: str, *, mirrored_to: int = 0, ext_next: int = 0) -> None:
    connection.execute("insert into kafka.shadow_links (name, servers) values (%s, 'k') on conflict do nothing", [LINK])
    connection.execute(
        "insert into kafka.shadow_partitions (link, topic, partition, topic_uuid, ext_topic, mirrored_to, ext_next)"
        " values (%s, %s, 0, %s, %s, %s, %s)",
        [LINK, topic, uuid_of(connection, topic), topic, mirrored_to, ext_next],
    )


def note(connection: psycopg.Connection, topic: str, runs: Sequence[tuple[int, int, int]]) -> None:
    bases, ends, ext_bases = (list(column) for column in zip(*runs, strict=True))
    connection.execute("select kafka.shadow_map(%s, %s, 0, %s, %s, %s)", [LINK, topic, bases, ends, ext_bases])


def there(connection: psycopg.Connection, topic: str, offset: int) -> int | None:
    row = connection.execute("select kafka.shadow_offset(%s, %s, 0, %s)", [LINK, topic, offset]).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def here(connection: psycopg.Connection, topic: str, offset: int) -> int | None:
    row = connection.execute("select kafka.shadow_source_offset(%s, %s, 0, %s)", [LINK, topic, offset]).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def test_every_offset_is_translated_exactly_over_gaps(connection: psycopg.Connection, topic: str) -> None:
    """Messages 5, 6, 7, then 10, then 12 and 13; the rest are markers, or gone."""
    start(connection, topic, mirrored_to=16, ext_next=106)
    note(connection, topic, [(5, 8, 100), (10, 11, 103), (12, 14, 104)])
    kept = [5, 6, 7, 10, 12, 13]
    for offset in range(17):
        expected = 100 + next((i for i, at in enumerate(kept) if at >= offset), len(kept))
        assert there(connection, topic, offset) == expected, offset
    assert there(connection, topic, 17) is None
    assert [here(connection, topic, 100 + i) for i in range(len(kept))] == kept
    assert here(connection, topic, 99) == 5
    assert here(connection, topic, 106) == 16
    assert here(connection, topic, 107) is None


def test_a_hole_at_the_other_cluster_is_passed_over(connection: psycopg.Connection, topic: str) -> None:
    """Batches that were sent again at the end are there, and not in the map."""
    start(connection, topic, mirrored_to=4, ext_next=24)
    note(connection, topic, [(0, 2, 10), (2, 4, 22)])
    assert [there(connection, topic, offset) for offset in range(5)] == [10, 11, 22, 23, 24]
    assert [here(connection, topic, offset) for offset in (11, 12, 21, 22, 24)] == [1, 2, 2, 2, 4]


def test_nothing_is_known_of_what_is_not_mirrored(connection: psycopg.Connection, topic: str) -> None:
    assert there(connection, topic, 0) is None
    assert here(connection, topic, 0) is None
    start(connection, topic, mirrored_to=3, ext_next=7)
    assert there(connection, topic, 0) == 7, "all before it is no message"
    assert there(connection, topic, 3) == 7
    assert there(connection, topic, 4) is None


def test_runs_that_continue_each_other_are_one(connection: psycopg.Connection, topic: str) -> None:
    start(connection, topic)
    note(connection, topic, [(0, 10, 0), (10, 20, 10)])
    note(connection, topic, [(20, 30, 20)])
    note(connection, topic, [(30, 31, 31), (40, 41, 32)])
    rows = connection.execute(
        "select base_offset, end_offset, ext_base from kafka.shadow_runs where topic = %s order by 1", [topic]
    ).fetchall()
    assert rows == [(0, 30, 0), (30, 31, 31), (40, 41, 32)]


def test_runs_before_the_beginning_are_forgotten(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    append(connection, [(part, batch(b"a", b"b")), (part, batch(b"c"))])
    start(connection, topic, mirrored_to=3, ext_next=4)
    note(connection, topic, [(0, 2, 0), (2, 3, 3)])
    connection.execute("select kafka.delete_records(%s, 1)", [part])
    assert connection.execute("select kafka.shadow_prune(%s)", [LINK]).fetchone() == (0,), "half of it is there"
    connection.execute("select kafka.delete_records(%s, 2)", [part])
    assert connection.execute("select kafka.shadow_prune(%s)", [LINK]).fetchone() == (1,)
    assert [there(connection, topic, offset) for offset in (0, 2, 3)] == [3, 3, 4]


def test_lag_is_told_in_messages_bytes_and_seconds(connection: psycopg.Connection, topic: str) -> None:
    (part,) = create(connection, topic)
    append(connection, [(part, batch(b"a", b"b", at_ms=1000)), (part, batch(b"c"))])
    start(connection, topic, mirrored_to=0)
    lag = "select records, bytes > 0, seconds, rejected, last_error from kafka.shadow_lag where topic = %s"
    row = connection.execute(lag, [topic]).fetchone()
    assert row is not None
    assert row[:2] == (3, True)
    assert row[2] > 1e9, "the oldest is of 1970"
    assert row[3:] == (0, None)
    connection.execute(
        "update kafka.shadow_partitions set mirrored_to = 3, last_error = 'oh' where topic = %s", [topic]
    )
    assert connection.execute(lag, [topic]).fetchone() == (0, False, 0.0, 0, "oh")


def test_a_forgotten_topic_leaves_nothing(connection: psycopg.Connection, topic: str) -> None:
    start(connection, topic, mirrored_to=1, ext_next=1)
    note(connection, topic, [(0, 1, 0)])
    assert connection.execute("select kafka.shadow_forget(%s, %s)", [LINK, topic]).fetchone() == (1,)
    assert connection.execute("select count(*) from kafka.shadow_runs where topic = %s", [topic]).fetchone() == (0,)


def test_the_map_is_asked_by_index(connection: psycopg.Connection, topic: str) -> None:
    """However long it is: a mirror of a part of the messages has a row for every other one."""
    start(connection, topic, mirrored_to=200_000, ext_next=100_000)
    connection.execute(
        "insert into kafka.shadow_runs select %s, %s, 0, i * 2, i * 2 + 1, i from generate_series(0, 99999) as i",
        [LINK, topic],
    )
    connection.execute("set statement_timeout = '10s'")
    for function in ("shadow_offset", "shadow_source_offset"):
        row = connection.execute(
            f"select count(kafka.{function}(%s, %s, 0, i)) from generate_series(0, 99999, 20) as i",
            [LINK, topic],
        ).fetchone()
        assert row == (5000,)
    connection.execute("reset statement_timeout")
