"""The `broker` destination: rows of a pipeline copied into the events of the broker, by the executors themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg

from headgate.broker import DEFAULT_SCHEMA, install
from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.broker.sender import BrokerSender
from headgate.destinations.checking import check_one_task, check_schema
from headgate.destinations.postgres import database_of, error_of
from headgate.model import DataError, HeadgateError
from headgate.postgres import open_connection

__all__ = ["BrokerDestination"]


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

    @property
    def takes_shares(self) -> bool:
        return True

    def details(self) -> dict[str, Any]:
        return {"database": database_of(self.url), "schema": self.schema, "exclusive": self.exclusive}

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        if self.exclusive and not lane.share:
            check_one_task(lane)
        with self._connected() as connection:
            yield BrokerSender(self, connection, lane, is_ordered=self.exclusive and not lane.is_late)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with open_connection(self.url, "headgate broker", prepare_threshold=None) as connection:
                yield connection
        except psycopg.Error as error:
            raise self._as_ours(error) from None

    def _as_ours(self, error: psycopg.Error) -> HeadgateError:
        where = database_of(self.url)
        if isinstance(error, psycopg.DataError):
            message = error.diag.message_primary or str(error)
            return DataError(message, where=where, remedy="correct the rows; PostgreSQL has no such text")
        grant = f"select {self.schema}.grant_usage('publisher', to_role => ...)"
        return error_of(error, where, grant=grant, gone="the broker is gone; restart the pipeline to install it")
