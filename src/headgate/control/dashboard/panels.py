"""The panels of the page. A panel is a template, and a function that finds what to show in it.

To add one: write `templates/NAME.html` and a function here, and put both into `PANELS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from headgate.control.dashboard.stores import Stores, read_broker, read_gateway
from headgate.model import Status
from headgate.pipeline.report import Report

__all__ = ["PANELS", "Panel", "Shown", "health", "unread"]


class Shown(Protocol):
    """What panels look at."""

    def reports(self) -> list[Report]: ...

    def status(self) -> dict[str, Any]: ...

    def stores(self) -> Stores: ...


@dataclass(frozen=True, slots=True)
class Panel:
    """`find` may wait for a server: it is called in a thread, at most once a second."""

    name: str
    title: str
    find: Callable[[Shown], dict[str, Any]]


def health(status: str) -> str:
    """The colour of a status: good, warn, bad, or idle."""
    known = Status(status)
    if known is Status.RUNNING:
        return "good"
    if known is Status.ERROR:
        return "bad"
    return "warn" if known is Status.DEGRADED else "idle"


def _strip(service: Shown) -> dict[str, Any]:
    reports = service.reports()
    counts = Counter(health(report.status.value) for report in reports)
    return {
        "healthy": counts["good"] + counts["idle"],
        "warn": counts["warn"],
        "bad": counts["bad"],
        "events_per_second": sum(report.rows_per_second for report in reports),
        "behind": max((report.lag_rows or 0 for report in reports), default=0),
    }


def _pipelines(service: Shown) -> dict[str, Any]:
    return {"pipelines": [report.as_dict() for report in service.reports()]}


def unread(error: Exception) -> str:
    """Without its words, in which there may be an address."""
    return f"this cannot be shown now: {type(error).__name__}"


def _gateway(service: Shown) -> dict[str, Any]:
    """If the tables cannot be read, the process may still know why."""
    found: dict[str, Any] = {"gateway": service.status().get("gateway"), "unread": "", "topics": [], "groups": []}
    try:
        return found | read_gateway(service.stores())
    except psycopg.Error as error:
        if found["gateway"] is None:
            raise
        return found | {"unread": unread(error)}


def _broker(service: Shown) -> dict[str, Any]:
    stores = service.stores()
    found = {
        "process": service.status().get("broker"),
        "known": stores.broker_url is not None,
        "broker": None,
        "unread": "",
    }
    try:
        return found | {"broker": read_broker(stores)}
    except psycopg.Error as error:
        return found | {"unread": unread(error)}


def _relay(service: Shown) -> dict[str, Any]:
    relay = service.status().get("relay")
    return {"relay": relay, "counters": relay["counters"] if relay else {}}


PANELS = (
    Panel("strip", "", _strip),
    Panel("pipelines", "Pipelines", _pipelines),
    Panel("gateway", "Gateway", _gateway),
    Panel("broker", "Broker", _broker),
    Panel("relay", "Relay", _relay),
)
