"""The gateway's database, for commands that change what is in it without a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psycopg
from psycopg_pool import AsyncConnectionPool

from headgate.commitlog.install import install
from headgate.config import DEFAULT_FILE, Config, load
from headgate.config.needs import Needs
from headgate.control.stack import open_stack
from headgate.gateway.outage import NO_DATABASE
from headgate.model import ConnectError
from headgate.postgres import PromptConnection, open_connection
from headgate.postgres.pool import make_pool

__all__ = ["gateway_pool", "gateway_url"]

_TIMEOUT_S = 10


@contextmanager
def gateway_url(config: Path | None, name: str) -> Iterator[str]:
    """Give the address of the database with the schema `kafka`, which is installed if it is missing."""
    loaded = load(config) if config or DEFAULT_FILE.exists() else Config()
    stack, endpoints = open_stack(loaded, Needs(nats=False))
    try:
        url = endpoints.postgres_url or loaded.postgres.url.get_secret_value()
        with open_connection(url, name) as connection:
            install(connection)
        yield url
    except NO_DATABASE as error:
        raise ConnectError(
            f"PostgreSQL does not answer: {error}", where="postgres", remedy="check the address, and that it runs"
        ) from error
    finally:
        if stack is not None:
            stack.stop()


@asynccontextmanager
async def gateway_pool(url: str, name: str) -> AsyncIterator[AsyncConnectionPool[psycopg.AsyncConnection]]:
    """Give the few connections that a command needs."""

    async def configure(connection: psycopg.AsyncConnection) -> None:
        """Nothing is special about them."""

    pool: AsyncConnectionPool[psycopg.AsyncConnection] = make_pool(
        PromptConnection, url, name, size=1, configure=configure, connect_timeout_s=_TIMEOUT_S, timeout_s=_TIMEOUT_S
    )
    await pool.open(wait=True)
    try:
        yield pool
    finally:
        await pool.close()
