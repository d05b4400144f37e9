"""A process that holds a point while Spark reads, since Spark ends the process that plans a query.

It is given its options on standard input and answers with one line: the snapshot's name, or an error. Whoever has read
a range tells it so by NOTIFY. It ends when all ranges are read, or when nobody has read for a while.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

import msgspec
from psycopg import sql

from headgate.model import HeadgateError, InternalError
from headgate.postgres import Connection
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
    process = subprocess.Popen(
        [sys.executable, "-m", "headgate.sources.postgres_snapshot.holder"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is not for it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as stdin, process.stdout as stdout:
        stdin.write(msgspec.json.encode(asdict(options)))
        stdin.close()
        answer = stdout.readline().decode()
    if error := HeadgateError.from_text(answer):
        raise error
    if not answer.strip():
        raise InternalError("the process that holds the snapshot ended", remedy="try again")
    process.returncode = 0  # it is on its own from here on, and nobody waits for its end
    return answer.strip()


def tell_holder(url: str, range_: SnapshotRange, count: int) -> None:
    """One of so many ranges is read."""
    with connect_pinned(url, "headgate snapshot") as connection:
        told = f"{range_.part.number} {count}"
        connection.execute("select pg_catalog.pg_notify(%s, %s)", [reader_name(range_.snapshot_name), told])


def main() -> None:
    options = msgspec.json.decode(sys.stdin.buffer.read(), type=HolderOptions)
    try:
        with (
            take_point(options.url, options.method, options.schema, options.table, options.timeout_s) as point,
            connect_pinned(options.url, "headgate snapshot") as connection,
        ):
            name = reader_name(point.snapshot_name)
            connection.execute(sql.SQL("listen {}").format(sql.Identifier(name)))
            _say(point.snapshot_name)
            _await_end(connection, name, options.hold_s)
    except HeadgateError as error:
        _say(error.to_text())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    sys.stdout.close()


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
    main()
