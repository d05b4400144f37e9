"""Connections to PostgreSQL, and its errors as ours: sorted by SQLSTATE, never by words in whatever language."""

from headgate.postgres.connect import (
    Connection,
    connect,
    connection_string,
    open_async,
    open_connection,
    open_raw,
    server_address,
)
from headgate.postgres.deadline import PromptConnection, QuietConnection, within
from headgate.postgres.errors import postgres_error, server_error, sqlstate_of

__all__ = [
    "Connection",
    "PromptConnection",
    "QuietConnection",
    "connect",
    "connection_string",
    "open_async",
    "open_connection",
    "open_raw",
    "postgres_error",
    "server_address",
    "server_error",
    "sqlstate_of",
    "within",
]
