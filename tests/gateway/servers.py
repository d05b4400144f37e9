"""A gateway for tests: in a thread of its own, on a port of its own, against a real PostgreSQL.

with running(url) as gateway:
    Producer({"bootstrap.servers": gateway.bootstrap})
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import uvloop
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headgate.gateway import Gateway, GatewayOptions
from headgate.gateway.groups import GroupSettings
from headgate.gateway.store import StoreSettings
from headgate.gateway.transactions import TransactionSettings

__all__ = ["GatewayThread", "new_database", "running"]

_T = TypeVar("_T")
TIMEOUT_S = 30.0


class GatewayThread:
    """A gateway, and the thread whose loop runs it."""

    def __init__(
        self,
        options: GatewayOptions,
        store_settings: StoreSettings | None = None,
        group_settings: GroupSettings | None = None,
        transaction_settings: TransactionSettings | None = None,
    ) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._thread.start()
        try:
            self.gateway: Gateway = self.call(
                Gateway.start(
                    options,
                    store_settings=store_settings,
                    group_settings=group_settings,
                    transaction_settings=transaction_settings,
                )
            )
        except BaseException:
            self._end_loop()
            raise

    @property
    def bootstrap(self) -> str:
        return str(self.gateway.advertised)

    @property
    def port(self) -> int:
        return self.gateway.options.port

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run something in the gateway's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def stop(self) -> None:
        """Drain it. Idempotent."""
        if self._thread.is_alive():
            try:
                self.call(self.gateway.drain())
            finally:
                self._end_loop()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@contextmanager
def running(
    postgres_url: str,
    *,
    store_settings: StoreSettings | None = None,
    group_settings: GroupSettings | None = None,
    transaction_settings: TransactionSettings | None = None,
    **options: Any,
) -> Iterator[GatewayThread]:
    """A gateway on a free port; `options` are those of `GatewayOptions`."""
    chosen = GatewayOptions(postgres_url=postgres_url, **{"port": 0} | options)
    thread = GatewayThread(chosen, store_settings, group_settings, transaction_settings)
    try:
        yield thread
    finally:
        thread.stop()


@contextmanager
def new_database(postgres_url: str) -> Iterator[str]:
    """A database of its own; the log of one gateway test is not seen by another."""
    name = f"gateway_{uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    try:
        yield make_conninfo(postgres_url, dbname=name)
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
