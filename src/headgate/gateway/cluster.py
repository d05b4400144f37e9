"""The gateways of one database as a cluster: who lives, who leads a partition, who is the controller.

Leadership has no power here: every gateway can append to every partition, because PostgreSQL orders the appends. It
only spreads clients over the gateways, and is computed from the list of the living by a rendezvous hash, so that all
gateways agree without talking, and few partitions move when a gateway comes or goes.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID, uuid4

from psycopg_pool import AsyncConnectionPool

from headgate.gateway.health import Health
from headgate.gateway.options import HostPort
from headgate.gateway.outage import NO_DATABASE
from headgate.gateway.store import WRITING
from headgate.runtime.ending import end

__all__ = ["PROTOCOL", "Broker", "Cluster"]

logger = logging.getLogger(__name__)

BEAT_S, EXPIRY_S = 1.0, 5.0
_BEATING = "heartbeat"
_TTL = f"{EXPIRY_S} seconds"
PROTOCOL = 1  # what a gateway understands: from 1 on transactions


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A gateway, as clients know it; `instance` is the process behind it."""

    node_id: int
    host: str
    port: int
    instance: UUID


class Cluster:
    """This gateway's place among the others. `live` is memory, refreshed with every heartbeat."""

    def __init__(self, pool: AsyncConnectionPool, here: Broker, cluster_id: str, health: Health) -> None:
        self.here = here
        self._health = health
        self.id = cluster_id
        self._pool = pool
        self._live: list[Broker] = [here]
        self._beating: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_fenced = False

    @classmethod
    async def join(cls, pool: AsyncConnectionPool, advertised: HostPort, health: Health) -> Cluster:
        """Take the place that belongs to an address, and keep it until `leave`."""
        instance = uuid4()
        async with pool.connection() as connection:
            joined = await connection.execute(
                "select kafka.broker_join(%s, %s, %s, %s::interval, %s), (select id from kafka.cluster)",
                (advertised.host, advertised.port, instance, _TTL, PROTOCOL),
            )
            row = await joined.fetchone()
        assert row is not None
        here = Broker(row[0], advertised.host, advertised.port, instance)
        cluster = cls(pool, here, _short(row[1]), health)
        await cluster.refresh()
        cluster._beating = asyncio.create_task(health.tend(_BEATING, cluster._beat), name="gateway heartbeat")
        return cluster

    @property
    def node_id(self) -> int:
        return self.here.node_id

    @property
    def instance(self) -> UUID:
        return self.here.instance

    @property
    def controller(self) -> Broker:
        return self._live[0]

    def live(self) -> list[Broker]:
        """Every living gateway, this one among them, by node id."""
        return self._live

    def leader_of(self, part_id: int) -> Broker:
        return self.choose(f"partition {part_id}")

    def choose(self, key: str) -> Broker:
        """The gateway that is responsible for a key."""
        return self._live[_rendezvous(key, tuple(broker.node_id for broker in self._live))]

    @property
    def _is_fit(self) -> bool:
        """Whether it can do what a leader is for. If not, clients are sent to the others."""
        return self._health.failing_s(WRITING) < EXPIRY_S

    def look_again(self) -> None:
        """Somebody came or went."""
        self._changed.set()

    async def refresh(self) -> None:
        """Ask PostgreSQL who lives."""
        async with self._pool.connection() as connection:
            rows = await connection.execute("select node_id, host, port, instance from kafka.live_brokers")
            found = [Broker(*row) async for row in rows]
        others = [broker for broker in found if broker.node_id != self.node_id]
        self._live = sorted([*others, self.here]) if self._is_fit or not others else others

    async def leave(self) -> None:
        """Stop beating, and let the others know at once."""
        if self._beating:
            await end(self._beating)
        try:
            async with self._pool.connection() as connection:
                await connection.execute("select kafka.broker_leave(%s, %s)", (self.node_id, self.instance))
        except NO_DATABASE as error:
            logger.warning("the gateway's place could not be given up; it expires by itself", extra={"why": str(error)})

    async def _beat(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._beat_once()
            except NO_DATABASE as error:
                # Without PostgreSQL nobody can serve: the list stays as it was until it is back.
                logger.warning("no heartbeat", extra={"why": str(error)})
                self._health.failed(_BEATING, error)
            else:
                self._health.works(_BEATING)

    async def _beat_once(self) -> None:
        if not self._is_fit:  # its place expires; others take its partitions, if there are any
            await self.refresh()
            return
        async with self._pool.connection() as connection:
            beat = await connection.execute(
                "select kafka.broker_beat(%s, %s, %s::interval, %s)", (self.node_id, self.instance, _TTL, PROTOCOL)
            )
            row = await beat.fetchone()
        is_fenced = row != (True,)
        if is_fenced and not self._is_fenced:
            logger.error(
                "another gateway advertises the same address; give each its own",
                extra={"advertised": str(HostPort(self.here.host, self.here.port))},
            )
        self._is_fenced = is_fenced
        await self.refresh()


def _short(uuid: UUID) -> str:
    """Ids of clusters are UUIDs in 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


@lru_cache(maxsize=65536)
def _rendezvous(key: str, node_ids: Sequence[int]) -> int:
    """The place of the node whose hash with the key is the highest."""

    def weight(place: int) -> bytes:
        return blake2b(f"{node_ids[place]} {key}".encode(), digest_size=8).digest()

    return max(range(len(node_ids)), key=weight)
