"""What the page shows of the tables in PostgreSQL. The queries are in the `.sql` files beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import psycopg
from psycopg import sql

from headgate.postgres import open_connection

__all__ = ["Stores", "read_broker", "read_gateway"]

_SETTINGS = {"statement_timeout": "2s", "default_transaction_read_only": "on"}
_CONNECT_S = 2


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the gateway and the broker keep what they keep; None: there is no such thing."""

    gateway_url: str | None = field(default=None, repr=False)
    broker_url: str | None = field(default=None, repr=False)
    broker_schema: str = "headgate"


def read_gateway(stores: Stores) -> dict[str, Any]:
    """Topics and groups of the Kafka gateway."""
    return {} if stores.gateway_url is None else _one(stores.gateway_url, "kafka", "gateway.sql")


def read_broker(stores: Stores) -> dict[str, Any] | None:
    """Groups of the broker and all that may need somebody's eye; None if it is not installed."""
    if stores.broker_url is None:
        return None
    try:
        return _one(stores.broker_url, stores.broker_schema, "broker.sql")
    except psycopg.errors.UndefinedTable:
        return None


def _one(url: str, schema: str, name: str) -> dict[str, Any]:
    with open_connection(url, "headgate dashboard", _SETTINGS, timeout_s=_CONNECT_S) as connection:
        connection.execute(sql.SQL("set search_path = {}, pg_temp").format(sql.Identifier(schema)))
        row = connection.execute(resources.files(__package__).joinpath(name).read_bytes()).fetchone()
    assert row is not None
    return dict(row[0])
