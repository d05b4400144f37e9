"""PostgreSQL servers by name, for tests that run on any: a version, a directory such as /usr/lib/postgresql/17, a URL.

15 is Debian's, with its defaults; 16 and 18 are the embedded ones; 14 and 17 are fetched when they are first asked for.
`HEADGATE_TEST_POSTGRES` names the one that the fixture `endpoints` gives, `HEADGATE_TEST_BROKER` the broker's.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance import postgres
from headgate.embedded.cluster import find_postgres
from headgate.embedded.postgres import PostgresServer
from tests.stock import STOCK_VERSION, StockPostgres

__all__ = ["chosen_url", "installation_of", "programs_of", "running_server", "start"]


@functools.cache
def chosen_url() -> str | None:
    """Where the server is that HEADGATE_TEST_POSTGRES names; it is started, and stopped when the process ends."""
    name = os.environ.get("HEADGATE_TEST_POSTGRES")
    if not name or "://" in name or "=" in name:
        return name
    directory = tempfile.mkdtemp(prefix="hg-chosen-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    server = start(name, Path(directory))
    atexit.register(server.stop)  # before its directory goes
    return server.url


def installation_of(name: str) -> Path:
    """Where the programs of a server are; a test that asks for one that cannot be had here is skipped."""
    if not name.isdigit():
        return Path(name)
    if name == str(STOCK_VERSION):
        return Path(f"/usr/lib/postgresql/{name}")
    if int(name) not in postgres.RELEASES:
        return find_postgres(int(name))
    try:
        return postgres.installation(int(name))
    except (SystemExit, subprocess.TimeoutExpired) as error:
        pytest.skip(f"there is no PostgreSQL {name} here: {error}")


def programs_of(name: str) -> Path:
    """Where pg_dump and the like are for a server: its own, or those of the next version that has them."""
    own = installation_of(name) / "bin"
    return own if (own / "pg_dump").exists() else find_postgres(16 if _version(own) <= 16 else 18) / "bin"


def start(name: str, directory: Path) -> PostgresServer:
    """A server in a directory of its own."""
    data, run = directory / "postgres", directory / "run"
    run.mkdir(parents=True, exist_ok=True)
    server = _server(name, data, run)
    server.start()
    return server


@contextmanager
def running_server(name: str, directory: Path) -> Iterator[str]:
    server = start(name, directory)
    try:
        yield server.url
    finally:
        server.stop()


def _server(name: str, data: Path, run: Path) -> PostgresServer:
    if name == str(STOCK_VERSION):
        return StockPostgres(data, run)
    installation = installation_of(name)
    if name.isdigit() and int(name) not in postgres.RELEASES:
        return PostgresServer(data, run, version=int(name), durable=False)
    return StockPostgres(data, run, version=_version(installation / "bin"), installation=installation)


def _version(programs: Path) -> int:
    said = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"(\d+)", said.stdout)
    assert found is not None
    return int(found[1])
