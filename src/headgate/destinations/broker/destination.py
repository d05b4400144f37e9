"""The `broker` destination: rows of a pipeline copied into the events of the broker, by the executors themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headgate.broker import DEFAULT_SCHEMA, install
from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.broker.sender import BrokerSender
from headgate.destinations.checking import check_schema
from headgate.model import AuthError, ConfigError, ConnectError, DataError, HeadgateError, StateError
from headgate.postgres import open_connection

__all__ = ["BrokerDestination"]

_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)


@dataclass(frozen=True, slots=True)
class BrokerDestination(Destination):
    """`exclusive`: rows come in one order, from one writer, so that a replay begins behind what is there."""

    name: str
    url: str = field(repr=False)
    schema: str = DEFAULT_SCHEMA
    topic: str = "{stream}.{topic}"
    payload: Literal["json", "text"] = "json"
    exclusive: bool = False

    def ensure(self) -> None:
        """Install the broker, or bring it up to date."""
        with self._connected() as connection:
            install(connection, self.schema)

    def check(self) -> str:
        with self._connected() as connection:
            return check_schema(connection, self.schema)

    def topic_name(self, stream: str | None, topic: str) -> str:
        """The topic of an event for a row's topic in a stream."""
        return self.topic.format(stream=stream, topic=topic) if stream else topic

    def details(self) -> dict[str, Any]:
        return {"database": self._where(), "schema": self.schema, "exclusive": self.exclusive}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        if self.exclusive and lane.task:
            raise ConfigError(
                "rows of several tasks at once have no common order",
                where="exclusive",
                remedy="set exclusive = false on the destination, or read the source in one partition",
            )
        with self._connected() as connection:
            yield BrokerSender(self, connection, lane, is_ordered=self.exclusive and not lane.is_late)

    def _where(self) -> str:
        known = conninfo_to_dict(self.url)
        return f"{known.get('host', 'localhost')}/{known.get('dbname', '')}"

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with open_connection(self.url, "headgate broker", prepare_threshold=None) as connection:
                yield connection
        except psycopg.Error as error:
            raise self._as_ours(error) from None

    def _as_ours(self, error: psycopg.Error) -> HeadgateError:
        message, where = error.diag.message_primary or str(error), self._where()
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            grant = f"select {self.schema}.grant_usage('publisher', to_role => ...)"
            return AuthError(message, where=where, remedy=grant)
        if isinstance(error, psycopg.DataError):
            return DataError(message, where=where, remedy="correct the rows; PostgreSQL has no such text")
        if isinstance(error, _MISSING):
            return StateError(message, where=where, remedy="the broker is gone; restart the pipeline to install it")
        return ConnectError(message, where=where, remedy="check that PostgreSQL runs and takes connections")
