"""Servers that the broker is tested on: the embedded ones, Debian's with its defaults, and any other by its directory.

A test runs on one server. With `@every_server` it runs on Debian's 15 and on the embedded 16 and 18: for what depends
on the version, such as plans, rights and the trees of conditions. `HEADGATE_TEST_BROKER` names one server for all tests
of the broker, these too: a version, or a directory such as /usr/lib/postgresql/17.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.embedded.cluster import find_postgres
from headgate.embedded.postgres import PostgresServer
from tests.stock import STOCK_VERSION, StockPostgres, needs_stock

__all__ = ["CHOSEN", "VERSIONS", "another_like", "every_server", "installation_of", "running_server", "start"]

CHOSEN = os.environ.get("HEADGATE_TEST_BROKER")
VERSIONS = (CHOSEN,) if CHOSEN else (str(STOCK_VERSION), "16", "18")

# The fixture `template` takes the name of a server; all others stand on it.
every_server = pytest.mark.parametrize(
    "template",
    [pytest.param(name, marks=needs_stock if name == str(STOCK_VERSION) else ()) for name in VERSIONS],
    indirect=True,
    ids=lambda name: f"pg{Path(name).name}",
)


def another_like(version: int) -> str:
    """The name of a server to start beside one of this version."""
    return CHOSEN if CHOSEN and not CHOSEN.isdigit() else str(version)


def installation_of(name: str) -> Path:
    """Where the programs of a server are."""
    if not name.isdigit():
        return Path(name)
    return Path(f"/usr/lib/postgresql/{name}") if name == str(STOCK_VERSION) else find_postgres(int(name))


def start(name: str, directory: Path) -> PostgresServer:
    """A server in a directory of its own; `name` is a version or an installation."""
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
    if name.isdigit():
        return PostgresServer(data, run, version=int(name), durable=False)
    installation = Path(name)
    said = subprocess.run([installation / "bin" / "postgres", "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"(\d+)", said.stdout)
    assert found is not None
    return StockPostgres(data, run, version=int(found[1]), installation=installation)
