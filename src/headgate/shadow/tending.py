"""What goes on beside a mirror, on the driver: offsets of groups are pushed, and its lag is looked at.

One thread for each link. Whatever goes wrong is noted, shown, and tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg

from headgate.model import HeadgateError
from headgate.postgres import open_connection
from headgate.postgres.statements import named_statements
from headgate.runtime.backoff import Backoff
from headgate.shadow.cluster import Cluster
from headgate.shadow.groups import push_groups
from headgate.shadow.links import find_link

__all__ = ["Tending", "seen", "stop_tending", "tend"]

_SQL = named_statements("headgate.shadow")

_log = logging.getLogger(__name__)
_MOST_PAUSE_S = 60.0
_JOIN_S = 15.0
_PRUNE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Tending:
    """What there is to look after."""

    name: str
    url: str = field(repr=False)
    cluster: Cluster
    has_groups: bool
    interval_s: float


class _Tender(threading.Thread):
    def __init__(self, tending: Tending) -> None:
        super().__init__(name=f"shadow-{tending.name}", daemon=True)
        self.tending = tending
        self.seen: dict[str, Any] = {}
        self.ending = threading.Event()
        self._prune_at = 0.0

    def run(self) -> None:
        backoff = Backoff(self.tending.interval_s, max(_MOST_PAUSE_S, self.tending.interval_s))
        pause_s = 0.0
        while not self.ending.wait(pause_s):
            try:
                self._look()
                self._push()
            except Exception as error:  # a thread that ends would never be missed
                self._note(error)
                pause_s = backoff.next_s()
            else:
                backoff.reset()
                pause_s = self.tending.interval_s

    def _look(self) -> None:
        with open_connection(self.tending.url, "headgate shadow") as connection:
            if time.monotonic() >= self._prune_at:
                connection.execute(_SQL["prune"], [self.tending.name])
                self._prune_at = time.monotonic() + _PRUNE_EVERY_S
            row = connection.execute(_SQL["lag"], [self.tending.name]).fetchone()
        assert row is not None
        names = ("lag_records", "lag_bytes", "lag_seconds", "rejected", "last_error")
        self.seen = self.seen | dict(zip(names, row, strict=True))

    def _push(self) -> None:
        if not self.tending.has_groups:
            return
        with open_connection(self.tending.url, "headgate shadow") as connection:
            link = find_link(connection, self.tending.name)
            if link is None:
                return  # the pipeline has not begun
            push_groups(connection, self.tending.cluster, link)
            connection.execute(_SQL["groups_well"], [self.tending.name])
        self.seen = self.seen | {"groups_error": None, "groups_failing": 0, "groups_pushed_at": time.time()}

    def _note(self, error: Exception) -> None:
        told = str(error) if isinstance(error, HeadgateError | psycopg.Error) else f"{type(error).__name__}: {error}"
        self.seen = self.seen | {"groups_error": told, "groups_failing": 1}
        _log.warning("looking after a mirror failed", extra={"link": self.tending.name, "error": told})
        try:
            with open_connection(self.tending.url, "headgate shadow") as connection:
                connection.execute(_SQL["groups_trouble"], [told, self.tending.name])
        except psycopg.Error:
            _log.debug("nor could that be noted", extra={"link": self.tending.name})


_lock = threading.Lock()
_tenders: dict[str, _Tender] = {}


def tend(tending: Tending) -> None:
    """Look after a link from now on. Idempotent."""
    with _lock:
        known = _tenders.get(tending.name)
        if known is not None and known.is_alive() and known.tending == tending:
            return
        if known is not None:
            known.ending.set()
        _tenders[tending.name] = started = _Tender(tending)
    started.start()


def stop_tending(name: str) -> None:
    """Look after a link no more. Idempotent."""
    with _lock:
        known = _tenders.pop(name, None)
    if known is not None:
        known.ending.set()
        known.join(_JOIN_S)


def seen(name: str) -> dict[str, Any]:
    """Return what was found out about a link the last time; nothing before the first time."""
    known = _tenders.get(name)
    return dict(known.seen) if known else {}
