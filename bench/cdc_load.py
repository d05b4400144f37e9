"""The load of the CDC measurement: 200-byte rows of seven columns, and where they go."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from headgate.destinations.nats import JetStream

__all__ = [
    "STREAM",
    "SUBJECTS",
    "await_messages",
    "fill",
    "fill_singly",
    "follower",
    "make_table",
    "update",
    "writing",
]

STREAM = "CDC"
SUBJECTS = ("cdc.>",)

_TABLE = """
create table {name} (
  id bigint generated always as identity primary key, account bigint not null, kind text not null,
  amount numeric(12, 2) not null, note text not null, flag boolean not null, changed_at timestamptz not null
)
"""
_ROWS = """
insert into {name} (account, kind, amount, note, flag, changed_at)
select g % 1000, 'transfer', g * 1.25, repeat('x', 110), g % 2 = 0, now() from generate_series(1, {count}) g
"""

Admin = psycopg.Connection[Any]


def make_table(admin: Admin, name: str) -> None:
    admin.execute(_TABLE.format(name=name).encode())


def fill(admin: Admin, rows: int, *, per_transaction: int = 1000, tables: tuple[str, ...] = ("ledger",)) -> None:
    """Transactions of so many rows, the tables by turns."""
    statements = [_ROWS.format(name=table, count=per_transaction).encode() for table in tables]
    for turn in range(rows // per_transaction):
        admin.execute(statements[turn % len(statements)])


def fill_singly(admin: Admin, rows: int) -> None:
    """Transactions of one row, written by the server itself: a client, or a disk, would be what is measured."""
    one = _ROWS.format(name="ledger", count=1)
    admin.execute("set synchronous_commit = off")
    admin.execute(f"do $$ begin for turn in 1..{rows} loop {one}; commit; end loop; end $$".encode())
    admin.execute("reset synchronous_commit")


def update(admin: Admin, rows: int, *, per_transaction: int = 1000) -> None:
    """The first rows of the ledger, each once."""
    for first in range(1, rows, per_transaction):
        admin.execute(
            "update ledger set amount = amount + 1, changed_at = now() where id >= %s and id < %s",
            [first, first + per_transaction],
        )


@contextmanager
def writing(admin: Admin, rows: int) -> Iterator[None]:
    """Somebody writes meanwhile."""
    writer = threading.Thread(target=fill, args=(admin, rows))
    writer.start()
    yield
    writer.join()


@contextmanager
def follower(url: str, stream: str) -> Iterator[None]:
    """An attached consumer."""
    process = subprocess.Popen([sys.executable, "-m", "bench.follow", url, stream, SUBJECTS[0]])
    try:
        yield
        assert process.poll() is None, "the consumer ended early"
    finally:
        process.kill()
        process.wait()


def await_messages(jetstream: JetStream, messages: int, *, every_s: float = 0.025, timeout_s: float = 300) -> int:
    """Look until the stream has so many messages. Looking often would be a load of its own."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        info = jetstream.stream_info(STREAM)
        if info is not None and info.last_sequence >= messages:
            return info.last_sequence
        time.sleep(every_s)
    raise TimeoutError(f"{messages} messages did not arrive")
