"""One pair of servers for all these tests, and a database for each."""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.embedded import Endpoints, Stack
from headgate.wire.pgtypes import SESSION
from tests.servers import chosen_url

__all__ = ["Database", "fresh_database", "shared_endpoints", "shared_stack", "target_url"]

_numbers = itertools.count(1)


def shared_endpoints() -> Endpoints:
    """Both servers; HEADGATE_TEST_POSTGRES has the tests use another PostgreSQL, of another version."""
    url, endpoints = chosen_url(), shared_stack().endpoints
    return replace(endpoints, postgres_url=url) if url else endpoints


@functools.cache
def shared_stack() -> Stack:
    """Started once; it stops itself when the process ends, and leaves nothing behind."""
    directory = tempfile.mkdtemp(prefix="hg-bootstrap-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # after the stack, which registers itself later
    stack = Stack(directory, durable=False)
    stack.start()
    return stack


@dataclass(frozen=True)
class Database:
    """An empty database, and the NATS server beside it."""

    url: str
    nats_url: str

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        settings = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        return psycopg.connect(self.url, autocommit=True, options=settings, client_encoding="UTF8", **options)


@contextmanager
def fresh_database() -> Iterator[Database]:
    endpoints = shared_endpoints()
    assert endpoints.postgres_url is not None
    assert endpoints.nats_url is not None
    name = f"bootstrap_{next(_numbers)}"
    with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
    try:
        yield Database(make_conninfo(endpoints.postgres_url, dbname=name), endpoints.nats_url)
    finally:
        with psycopg.connect(endpoints.postgres_url, autocommit=True) as admin:
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [name]
            )
            admin.execute(f"drop database {name} with (force)".encode())


def target_url(kind: str, directory: Path, other: Database) -> str:
    """Where a replica of that kind goes: a file in the directory, or the other database."""
    if kind != "postgresql":
        return f"{kind}:///{directory}/replica.db"
    parts = {name: str(value) for name, value in conninfo_to_dict(other.url).items()}
    database, user = parts.pop("dbname"), parts.pop("user")
    return f"postgresql://{user}@/{database}?{urlencode(parts)}"
