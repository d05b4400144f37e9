"""What the page shows of the tables in PostgreSQL. The queries are in the `.sql` files beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from headgate.postgres import open_connection

__all__ = ["Stores", "open_store", "read_broker", "read_one"]

# Compiling a query takes longer than any of ours does.
_SETTINGS = {"statement_timeout": "2s", "default_transaction_read_only": "on", "jit": "off"}
_CONNECT_S = 2


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the gateway and the broker keep what they keep; None: there is no such thing."""

    gateway_url: str | None = field(default=None, repr=False)
    broker_url: str | None = field(default=None, repr=False)
    broker_schema: str = "headgate"


def read_broker(stores: Stores) -> dict[str, Any] | None:
    """Groups of the broker and all that may need somebody's eye; None if it is not installed."""
    if stores.broker_url is None:
        return None
    try:
        return read_one(stores.broker_url, stores.broker_schema, "broker.sql")
    except psycopg.errors.UndefinedTable:
        return None


def read_one(url: str, schema: str, name: str, **asked: object) -> dict[str, Any] | None:
    """Return the one object that a query gives, or None if it gives no row."""
    with open_store(url) as connection:
        connection.execute(sql.SQL("set search_path = {}, pg_temp").format(sql.Identifier(schema)))
        statement = resources.files(__package__).joinpath(name).read_bytes()
        row = connection.execute(statement, asked or None).fetchone()
    return dict(row[0]) if row else None


def open_store(url: str) -> psycopg.Connection:
    """Open a connection that only reads, and for which nothing may take long."""
    return open_connection(url, "headgate dashboard", _SETTINGS, timeout_s=_CONNECT_S)
