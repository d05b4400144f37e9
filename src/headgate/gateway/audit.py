"""Audit log of a gateway: logins, refused requests and administrative changes, as lines of the logger `headgate.audit`.

    context.audit.denied(context.session, api="Produce", operation="WRITE", resource="topic orders")

A line says who, from where and what; never a password, a token, the value of a setting or of a message. Whoever repeats
one thing gets a few lines in a minute, then one with the number of the others, so that nobody can fill a disk with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headgate.gateway.context import Session
    from headgate.gateway.metrics import Metrics

__all__ = ["LOGGER", "Audit", "Flood"]

LOGGER = "headgate.audit"
logger = logging.getLogger(LOGGER)

WINDOW_S = 60.0
MOST_FAILURES, MOST_LOGINS, MOST_CHANGES = 10, 100, 1000  # lines in a window for one address or one client
_MOST_KEYS = 1000
_MOST_CHARACTERS = 300  # of a name that a client sent

Who: TypeAlias = tuple[str, ...]  # an address, and for those who are known their principal
_OTHERS: Who = ("others",)


@dataclass(slots=True)
class _Window:
    since: float
    count: int = 0


@dataclass(slots=True)
class Flood:
    """Counts what repeats. A key beyond the first thousand of a minute shares one count with all that follow."""

    limit: int
    now: Callable[[], float] = time.monotonic
    _windows: dict[Who, _Window] = field(default_factory=dict)

    def admits(self, key: Who) -> bool:
        """Return whether this one is among the first of its minute; the others are counted."""
        if key not in self._windows and len(self._windows) >= _MOST_KEYS:
            key = _OTHERS
        window = self._windows.setdefault(key, _Window(self.now()))
        window.count += 1
        return window.count <= self.limit

    def over(self, *, at_once: bool = False) -> list[tuple[Who, int]]:
        """Forget minutes that are over; returns for which keys how many were not told."""
        now = self.now()
        gone = [key for key, window in self._windows.items() if at_once or now - window.since >= WINDOW_S]
        counts = [(key, self._windows.pop(key).count - self.limit) for key in gone]
        return [(key, hidden) for key, hidden in counts if hidden > 0]


class Audit:
    """Writes the audit log, unless it is turned off, and counts logins and refusals either way."""

    def __init__(self, metrics: Metrics, *, is_on: bool = True, now: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._is_on = is_on
        self._floods = {
            "login failed": Flood(MOST_FAILURES, now),
            "login": Flood(MOST_LOGINS, now),
            "ended": Flood(MOST_LOGINS, now),
            "denied": Flood(MOST_FAILURES, now),
            "changed": Flood(MOST_CHANGES, now),
        }

    def logged_in(self, session: Session, mechanism: str, *, client_id: str | None = "", again: bool = False) -> None:
        """Note a login, or with `again` one that was repeated on its connection."""
        self._metrics.logins[mechanism, "success"] += 1
        who = session.address, str(session.principal)
        self._line("login", who, session, mechanism=mechanism, client_id=client_id or "", again=again)

    def login_failed(
        self, session: Session, mechanism: str, why: str | None, *, user: str = "", client_id: str | None = ""
    ) -> None:
        """Note a login that failed; `user` is whom the client claimed to be."""
        self._metrics.logins[mechanism, "failure"] += 1
        told = {"mechanism": mechanism, "claimed": user, "client_id": client_id or "", "why": why or ""}
        self._line("login failed", (session.address,), session, level=logging.WARNING, **told)

    def ended(self, session: Session, why: str) -> None:
        """Note that a client was cut off, because it may no longer be here."""
        self._line("ended", (session.address, str(session.principal)), session, why=why)

    def denied(self, session: Session, *, api: str, operation: str, resource: str, client_id: str | None = "") -> None:
        """Note a request, or a part of one, that this principal may not make."""
        self._metrics.denied_total += 1
        told = {"api": api, "operation": operation, "resource": resource, "client_id": client_id or ""}
        who = session.address, str(session.principal)
        self._line("denied", who, session, level=logging.WARNING, **told)

    def changed(self, session: Session, api: str, changes: Sequence[dict[str, str]], client_id: str | None) -> None:
        """Note what an administrative request has changed, a line for each thing."""
        who = session.address, str(session.principal)
        for change in changes:
            told: dict[str, Any] = {"api": api, "client_id": client_id or "", **change}
            self._line("changed", who, session, **told)

    def sweep(self, *, at_once: bool = False) -> None:
        """Tell of minutes that are over how many lines were left out; `at_once` of those that are not, too."""
        for event, flood in self._floods.items():
            for key, hidden in flood.over(at_once=at_once):
                who = dict(zip(("address", "principal"), key, strict=False))
                logger.warning("more of the same", extra={"audited": event, "count": hidden, **who})

    def _line(self, event: str, key: Who, session: Session, *, level: int = logging.INFO, **told: Any) -> None:
        if self._is_on and self._floods[event].admits(key):
            who = {"principal": str(session.principal), "address": session.peer}
            logger.log(level, event, extra={name: _short(value) for name, value in (who | told).items()})


def _short(value: Any) -> Any:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value
