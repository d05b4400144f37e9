"""What a page shows of a relay beside its counters: the busiest hosts, who listens, accounts taken down, newest drops.

All of it is bounded, because it is told every second and there are thousands of hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict
from heapq import nlargest
from typing import Any

from headgate.model import HeadgateError
from headgate.relay.front import Consumer
from headgate.relay.ledger import HostBook
from headgate.relay.parts import Parts
from headgate.relay.store import HostRow, HostStatus

__all__ = ["Overview"]

_log = logging.getLogger(__name__)

_MOST = 50  # of each sort
_MOST_REASONS = 10  # of one host
_MOST_QUERY = 200
_ACCOUNTS_EVERY_S = 10.0


class Overview:
    """The overview of one relay, as it is at each moment; of accounts taken down, as it was some seconds ago."""

    def __init__(self, parts: Parts, consumers: Callable[[], list[Consumer]]) -> None:
        self._parts = parts
        self._consumers = consumers
        self._taken_down: list[dict[str, Any]] = []

    async def keep_reading(self) -> None:
        """Read now and then which accounts are taken down; until cancelled."""
        while True:
            try:
                rows = await self._parts.store.list_accounts("", _MOST, taken_down=True)
                self._taken_down = [{"did": row.did, "host": row.host, "status": row.local_status} for row in rows]
            except HeadgateError as error:
                _log.debug("accounts taken down are not known: %s", error)
            await asyncio.sleep(_ACCOUNTS_EVERY_S)

    def as_dict(self) -> dict[str, Any]:
        """Return it as it is told to the control plane."""
        rows, books = self._parts.store.hosts(), self._parts.ledger.hosts()
        consumers = self._consumers()
        busiest = nlargest(_MOST, rows, key=lambda row: _weight(row, books))
        return {
            "hosts": [self._host(row, books.get(row.hostname, HostBook())) for row in busiest],
            "host_count": len(rows),
            "consumers": [_consumer(each) for each in consumers[:_MOST]],
            "consumer_count": len(consumers),
            "account_count": sum(row.account_count for row in rows),
            "taken_down": self._taken_down,
            "drops": [asdict(drop) for drop in self._parts.ledger.newest_drops(_MOST // 2)],
        }

    def _host(self, row: HostRow, book: HostBook) -> dict[str, Any]:
        return {
            "hostname": row.hostname,
            "status": row.status.value,
            "connected": self._parts.hosts.connected(row.hostname),
            "cursor": row.cursor,
            "accounts": row.account_count,
            "failures": row.failures,
            "last_seen": row.last_seen,
            "received": book.received,
            "accepted": book.accepted,
            "pending": book.pending,
            "dropped": dict(book.dropped.most_common(_MOST_REASONS)),
        }


def _weight(row: HostRow, books: dict[str, HostBook]) -> tuple[bool, int]:
    """Hosts whose accounts are too many come first: somebody may have to decide."""
    book = books.get(row.hostname)
    return row.status is HostStatus.THROTTLED, book.received if book else 0


def _consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "number": consumer.number,
        "address": consumer.address,
        "path": consumer.path,
        "query": consumer.query[:_MOST_QUERY],
        "since": consumer.since,
        "waiting_bytes": consumer.connection.transport.get_write_buffer_size(),
    }
