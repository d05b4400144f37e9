"""A process that holds a point while Spark reads, since Spark ends the process that plans a query.

It is given its options and answers as every child does (`headgate.runtime.child`), but it stays when its input closes.
Whoever has read a range tells it so by NOTIFY. It ends when all ranges are read, or when nobody has read for a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

import msgspec
from psycopg import sql

from headgate.postgres import Connection
from headgate.runtime.child import await_ready, run_child, say, start_child
from headgate.sources.postgres_snapshot.connections import connect_pinned
from headgate.sources.postgres_snapshot.copying import SnapshotRange, reader_name
from headgate.sources.postgres_snapshot.points import Method, take_point

__all__ = ["HolderOptions", "hold_in_background", "tell_holder"]

_POLL_S = 0.5
_READERS = "select 1 from pg_catalog.pg_stat_activity where application_name = %s limit 1"


@dataclass(frozen=True, slots=True)
class HolderOptions:
    """What to hold, and how long while nobody reads."""

    url: str = field(repr=False)
    method: Method
    schema: str
    table: str
    timeout_s: float
    hold_s: float


def hold_in_background(options: HolderOptions) -> str:
    """Take a point in a process of its own; the snapshot's name."""
    process = start_child("headgate.sources.postgres_snapshot.holder", options, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        name = str(await_ready(process, "the process that holds the snapshot")["snapshot"])
    process.returncode = 0  # it is on its own from here on, and nobody waits for its end
    return name


def tell_holder(url: str, range_: SnapshotRange, count: int) -> None:
    """One of so many ranges is read."""
    with connect_pinned(url, "headgate snapshot") as connection:
        told = f"{range_.part.number} {count}"
        connection.execute("select pg_catalog.pg_notify(%s, %s)", [reader_name(range_.snapshot_name), told])


def _hold(line: bytes) -> None:
    options = msgspec.json.decode(line, type=HolderOptions)
    with (
        take_point(options.url, options.method, options.schema, options.table, options.timeout_s) as point,
        connect_pinned(options.url, "headgate snapshot") as connection,
    ):
        name = reader_name(point.snapshot_name)
        connection.execute(sql.SQL("listen {}").format(sql.Identifier(name)))
        say(ready={"snapshot": point.snapshot_name})
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody listens from here on
        _await_end(connection, name, options.hold_s)


def _await_end(connection: Connection, name: str, hold_s: float) -> None:
    done: set[int] = set()
    heard = time.monotonic()
    while time.monotonic() - heard < hold_s:
        for notice in connection.notifies(timeout=_POLL_S):
            number, count = map(int, notice.payload.split())
            done.add(number)
            if len(done) == count:
                return
        if connection.execute(_READERS, [name]).fetchone():
            heard = time.monotonic()


if __name__ == "__main__":
    run_child(_hold)
