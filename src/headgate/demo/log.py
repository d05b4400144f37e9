"""The demo's log: the shop's changes once more, for Kafka clients and for SQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, Self

import psycopg

from headgate.commitlog.install import install
from headgate.commitlog.topics import ensure_topic
from headgate.model import OccupiedError
from headgate.postgres import open_connection
from headgate.runtime.listening import listen

__all__ = ["DemoLog", "choose_port", "prepare_log"]

_KAFKA_PORT = 9092
_TOPIC = "cdc.shop.orders.insert"
# What the shop does: other topics would be made as well, but keep their messages for a week.
_TOPICS = (
    _TOPIC,
    "cdc.shop.orders.update",
    "cdc.shop.orders.delete",
    "cdc.shop.customers.insert",
    "cdc.shop.stock.update",
)
_SETTINGS = {"retention.ms": "3600000"}
_COUNT = """
select coalesce(sum(next_offset), 0)::bigint, coalesce(sum(next_offset - log_start_offset), 0)::bigint
from kafka.partitions
"""


def choose_port() -> int:
    """Kafka's own port if nobody listens there, else any."""
    try:
        with closing(listen("127.0.0.1", _KAFKA_PORT, backlog=1, where="gateway.port")):
            return _KAFKA_PORT
    except OccupiedError:
        return 0


def prepare_log(url: str) -> None:
    """Make the topics, with messages that go after an hour, as they do in NATS."""
    with open_connection(url, "headgate demo") as connection:
        install(connection)
        for topic in _TOPICS:
            ensure_topic(connection, topic, 1, _SETTINGS)


class DemoLog:
    """How much is in the log, and what to type to see it."""

    def __init__(self, url: str, gateway: Mapping[str, Any]) -> None:
        self.bootstrap = str(gateway["advertised"])
        self.messages = 0  # that can be read now
        self.arrived = 0  # since the demo was started
        self.first_arrival: float | None = None  # on the monotonic clock
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._began_at: int | None = None

    def __enter__(self) -> Self:
        self.poll()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._close()

    @property
    def kcat_command(self) -> str:
        return f"kcat -b {self.bootstrap} -C -t {_TOPIC} -o -3 -e"

    @property
    def sql_command(self) -> str:
        """Return the command that shows the messages of `kcat_command` by SQL, the newest first."""
        query = f"select convert_from(value, 'utf8') from kafka.messages where topic = '{_TOPIC}'"  # noqa: S608
        return f'psql "{self._url}" -Atc "{query} order by global_offset desc limit 3"'

    def poll(self) -> None:
        """Look once. A server that does not answer right now is looked at again next time."""
        try:
            self._look()
        except psycopg.Error:
            self._close()

    def _look(self) -> None:
        if self._connection is None:
            self._connection = open_connection(self._url, "headgate demo")
        ((written, self.messages),) = self._connection.execute(_COUNT).fetchall()
        if self._began_at is None:
            self._began_at = written
        self.arrived = written - self._began_at
        if self.arrived:
            self.first_arrival = self.first_arrival or time.monotonic()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
