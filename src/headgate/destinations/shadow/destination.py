"""The `shadow` destination: batches of the log to the same partitions of topics at another Kafka cluster.

The map of offsets and all that must be known after a crash is in PostgreSQL, in the database of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from headgate.commitlog.install import install
from headgate.destinations.base import OWN_LANE, Destination, Lane, Sender
from headgate.destinations.checking import check_schema
from headgate.destinations.postgres import database_of, error_of
from headgate.model import StateError
from headgate.postgres import open_connection
from headgate.shadow.client import borrow_client
from headgate.shadow.cluster import Cluster
from headgate.shadow.links import Link, find_link, prepare_link
from headgate.shadow.tending import Tending, seen, stop_tending, tend

__all__ = ["ShadowDestination"]

_GRANT = "GRANT ALL ON SCHEMA kafka, its tables and functions"
_GONE = "the schema kafka is gone; start a gateway, or restart the pipeline, to make it"


@dataclass(frozen=True, slots=True)
class ShadowDestination(Destination):
    """Takes nothing but whole batches, of a source with `unit = "batches"`."""

    name: str
    url: str = field(repr=False)
    cluster: Cluster
    topic_prefix: str = ""
    percent: int = 100
    replicas: int = -1
    groups: tuple[str, ...] = ()
    group_interval_s: float = 5.0

    def ensure(self) -> None:
        """Make the tables, look who the cluster is, and get a producer id from it, once."""
        with self._connected() as connection:
            install(connection)
            with borrow_client(self.cluster) as client:
                prepare_link(connection, client, self._wanted())

    def check(self) -> str:
        with self._connected() as connection:
            found = check_schema(connection, "kafka")
        with borrow_client(self.cluster) as client:
            return f"{found}; cluster {client.cluster_id()}, {len(client.topics())} topics"

    def start(self) -> None:
        tend(Tending(self.name, self.url, self.cluster, bool(self.groups), self.group_interval_s))

    def stop(self) -> None:
        stop_tending(self.name)

    def details(self) -> dict[str, Any]:
        return {"servers": self.cluster.servers, "percent": self.percent, **seen(self.name)}

    def _wanted(self) -> Link:
        return Link(
            name=self.name,
            direction="out",
            servers=self.cluster.servers,
            cluster_id=None,
            producer_id=None,
            topic_prefix=self.topic_prefix,
            percent=self.percent,
            groups=list(self.groups),
            group_interval_s=self.group_interval_s,
        )

    @contextmanager
    def open(self, lane: Lane = OWN_LANE) -> Iterator[Sender]:
        from headgate.destinations.shadow.sender import ShadowSender

        with self._connected() as connection, borrow_client(self.cluster) as client:
            link = find_link(connection, self.name)
            if link is None:
                raise StateError(f"the link {self.name} is gone", where="kafka.shadow_links", remedy="restart headgate")
            yield ShadowSender(self.name, connection, client, link, self.replicas)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            with open_connection(self.url, "headgate shadow") as connection:
                yield connection
        except psycopg.Error as error:
            raise error_of(error, database_of(self.url), grant=_GRANT, gone=_GONE) from None
