"""Debian's PostgreSQL 15 as it comes, JIT and all: the server that most people have, beside the embedded ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headgate.embedded.postgres import PostgresServer

__all__ = ["STOCK_VERSION", "StockPostgres", "both_servers", "is_installed", "needs_stock", "stock_url"]

STOCK_VERSION = 15
_INSTALLATION = Path(os.environ.get("HEADGATE_TEST_STOCK", f"/usr/lib/postgresql/{STOCK_VERSION}"))


def is_installed() -> bool:
    return (_INSTALLATION / "bin" / "postgres").exists()


needs_stock = pytest.mark.skipif(
    not is_installed(),
    reason=f"Debian's PostgreSQL {STOCK_VERSION} is not installed: apt-get install postgresql-{STOCK_VERSION}",
)


class StockPostgres(PostgresServer):
    """A server with the defaults of its package, but for what logical decoding needs and for fsync."""

    def __init__(
        self,
        data: Path,
        run: Path,
        *,
        version: int = STOCK_VERSION,
        installation: Path = _INSTALLATION,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data, run, version=version, installation=installation, durable=False)
        self._settings = {"wal_level": "logical", "fsync": "off", **(settings or {})}


# For a fixture of a module that stands for one of its package: with its name, and on this server, too.
both_servers = [pytest.param("embedded", id="embedded"), pytest.param("stock", id="pg15", marks=needs_stock)]


@pytest.fixture(scope="session")
def stock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all tests that ask for one: make databases of your own."""
    directory = tmp_path_factory.mktemp("stock")
    (directory / "run").mkdir()
    server = StockPostgres(directory / "postgres", directory / "run")
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
