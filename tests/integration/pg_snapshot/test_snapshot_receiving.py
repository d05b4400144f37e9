"""Receiving rows by a kernel gives what receiving them one by one gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import pq

from headgate.embedded import Endpoints
from headgate.kernels.changes.copy_data import Received, fast_receiver
from headgate.sources.postgres_snapshot.copying import SlowReceiver

Receive = Callable[[int, int], Received]

# Rows of all sizes, some larger than the receiver's whole buffer, an empty one first and last.
QUERY = """
copy (select repeat('x', case when g % 97 = 0 then 300000 + g when g in (1, 400) then 0 else g * 7 % 1000 end)
      from generate_series(1, 400) g) to stdout
"""


@contextmanager
def copying(url: str, query: str) -> Iterator[pq.abc.PGconn]:
    connection = pq.PGconn.connect(url.encode())
    assert connection.exec_(query.encode()).status == pq.ExecStatus.COPY_OUT
    yield connection
    connection.finish()


def fast(connection: pq.abc.PGconn) -> Receive:
    receiver = fast_receiver(getattr(connection, "pgconn_ptr", None))
    assert receiver is not None, "the fast way must be found here"
    return receiver.receive


def slow(connection: pq.abc.PGconn) -> Receive:
    return SlowReceiver(connection).receive


def all_of(receive: Receive, most_rows: int, most_bytes: int) -> tuple[bytes, int, int]:
    text, rows = b"", 0
    while True:
        received = receive(most_rows, most_bytes)
        assert received.rows <= most_rows
        text, rows = text + bytes(received.text), rows + received.rows
        if received.end:
            return text, rows, received.end


@pytest.mark.parametrize(("most_rows", "most_bytes"), [(1, 1 << 20), (7, 100), (1000, 1), (1024, 128 << 10)])
def test_the_same_rows(endpoints: Endpoints, most_rows: int, most_bytes: int) -> None:
    url = endpoints.postgres_url or ""
    found = []
    for way in (fast, slow):
        with copying(url, QUERY) as connection:
            found.append(all_of(way(connection), most_rows, most_bytes))
            result = connection.get_result()
            assert result is not None
            assert result.status == pq.ExecStatus.COMMAND_OK
    assert found[0] == found[1]
    assert found[0][1:] == (400, -1)


@pytest.mark.parametrize("way", [fast, slow])
def test_an_error_in_the_middle(endpoints: Endpoints, way: Callable[[pq.abc.PGconn], Receive]) -> None:
    url = endpoints.postgres_url or ""
    with copying(url, "copy (select 1 / (g - 90000) from generate_series(1, 100000) g) to stdout") as connection:
        _, rows, end = all_of(way(connection), 1024, 1 << 20)
        result = connection.get_result()
        assert result is not None
        assert (rows < 90000, end < 0, result.status) == (True, True, pq.ExecStatus.FATAL_ERROR)


@pytest.mark.parametrize("way", [fast, slow])
def test_a_connection_that_is_cut(endpoints: Endpoints, way: Callable[[pq.abc.PGconn], Receive]) -> None:
    url = endpoints.postgres_url or ""
    query = "copy (select repeat('x', 1000) from generate_series(1, 1000000)) to stdout"
    with copying(url, query) as connection, psycopg.connect(url, autocommit=True) as admin:
        receive = way(connection)
        receive(10, 1 << 20)
        admin.execute("select pg_terminate_backend(%s)", [connection.backend_pid])
        assert all_of(receive, 1024, 1 << 20)[2] < 0
