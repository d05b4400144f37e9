"""The pages: what each is made of, and where that is found.

A page is a list of parts. A part is a template, and a function that finds what to show in it. To add one: write
`templates/NAME.html` and a function here or beside, and name both in `PAGES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import quote

import psycopg

from headgate.control.dashboard.flowing import flow, strip, table
from headgate.control.dashboard.gateway import BROWSED, find_group, find_messages, find_topic, read_gateway
from headgate.control.dashboard.history import History
from headgate.control.dashboard.stores import Stores, read_broker
from headgate.control.dashboard.tail import Tails, Wanted, unreadable
from headgate.control.pipelines import NotFoundError, PipelineControl
from headgate.pipeline.report import Report

__all__ = ["PAGES", "Page", "Part", "Scene", "Shown", "unread"]

_MOST_DESTINATIONS = 100
_MOST_BATCHES = 15
_PHASES = ("latestOffset", "queryPlanning", "getBatch", "walCommit", "addBatch", "commitOffsets")
_MOST_SNAPSHOTS = 50


class Shown(Protocol):
    """What pages look at."""

    def reports(self) -> list[Report]: ...

    def status(self) -> dict[str, Any]: ...

    def stores(self) -> Stores: ...

    def relay_metrics(self) -> dict[str, Any] | None: ...

    def snapshots(self) -> list[dict[str, Any]]: ...

    def control(self) -> PipelineControl: ...


class Scene:
    """What one rendering of a page looks at. Whatever several parts need is asked for once."""

    def __init__(self, service: Shown, history: History, tails: Tails, arguments: Mapping[str, str]) -> None:
        self.service = service
        self.history = history
        self.tails = tails
        self.arguments = arguments

    @cached_property
    def reports(self) -> list[Report]:
        return self.service.reports()

    @cached_property
    def status(self) -> dict[str, Any]:
        return self.service.status()

    @cached_property
    def control(self) -> PipelineControl:
        return self.service.control()

    @cached_property
    def kinds(self) -> dict[str, dict[str, str]]:
        """The kinds of sources and destinations by their names."""
        return self.control.kinds()

    @property
    def report(self) -> Report:
        """The pipeline that the page is about."""
        name = self.arguments["name"]
        found = next((report for report in self.reports if report.pipeline == name), None)
        if found is None:
            raise NotFoundError(f"there is no pipeline {name}", remedy="the overview has those that run")
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """`find` may wait for a server: it is called in a thread, and for all who look at once."""

    name: str
    title: str
    find: Callable[[Scene], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    """`path` is behind `/dashboard`. `arguments` are the names that its query may have."""

    name: str
    title: str
    path: str
    parts: tuple[Part, ...]
    arguments: frozenset[str] = frozenset()
    check: Callable[[Scene], object] = lambda scene: None  # raises NotFoundError if there is no such thing
    form: str = ""  # a template above the parts, which stays as it is while somebody looks


def unread(error: Exception) -> str:
    """Without its words, in which there may be an address."""
    return f"this cannot be shown now: {type(error).__name__}"


# -- the overview


def _strip(scene: Scene) -> dict[str, Any]:
    return strip(scene.reports, scene.history)


def _begin(scene: Scene) -> dict[str, Any]:
    """What to type next, as long as nothing has come through."""
    reports = scene.reports
    kinds = scene.kinds["sources"]
    hints = [(report.pipeline, *_hint(report, kinds.get(report.source, ""))) for report in reports]
    waits = bool(reports) and not any(report.rows_total for report in reports)
    return {
        "phase": scene.status.get("phase", "running"),
        "doing": scene.status.get("doing"),
        "is_empty": not reports,
        "hints": hints if waits else [],
    }


def _hint(report: Report, kind: str) -> tuple[str, str]:
    """What to do, and the command that does it where there is one."""
    details = report.source_details
    published, table = details.get("publication", ""), details.get("table", "its table")
    hints = {
        "postgres-cdc": (f"commit any change of a table in the publication {published}", ""),
        "postgres-poll": (f"insert a row into {table}", ""),
        "webhook": ("post something", f"curl -H 'content-type: application/json' -d '{{}}' {details.get('url', '')}"),
        "files": ("write a line into one of its files", ""),
        "broker": ("publish an event of its topics", 'headgate broker publish user.created \'{"name": "ann"}\''),
        "kafka": ("write a message to its topic", ""),
        "random": ("wait: the first rows come when Spark is warm", ""),
    }
    return hints.get(kind, ("wait for its first row", ""))


def _flow(scene: Scene) -> dict[str, Any]:
    return {"flow": flow(scene.reports, scene.kinds, scene.history)}


def _pipelines(scene: Scene) -> dict[str, Any]:
    return {"rows": table(scene.reports, scene.kinds, scene.history)}


def _slots(scene: Scene) -> dict[str, Any]:
    return {"slots": [slot for report in scene.reports if (slot := slot_of(report))]}


def slot_of(report: Report) -> dict[str, Any] | None:
    """The slot that a pipeline reads, with what PostgreSQL keeps for it and may keep at most."""
    details = report.source_details
    if "slot" not in details:
        return None
    retained, safe = details.get("slot_retained_bytes"), details.get("slot_safe_wal_bytes")
    level = details.get("slot_level") or ("unknown" if details.get("slot_error") else "ok")
    limit = retained + max(safe, 0) if retained is not None and safe is not None else None
    return {
        "name": details["slot"],
        "pipeline": report.pipeline,
        "url": f"/dashboard/pipelines/{quote(report.pipeline, safe='')}",
        "active": details.get("slot_active"),
        "level": level,
        "health": {"ok": "good", "warning": "warn", "critical": "bad"}.get(level, "warn"),
        "wal_status": details.get("slot_wal_status"),
        "retained": retained,
        "limit": limit,
        "share": min(1.0, retained / limit) if limit else None,
        "lag": details.get("slot_lag_bytes"),
        "spool": details.get("spool_bytes"),
        "error": details.get("slot_error"),
    }


def _servers(scene: Scene) -> dict[str, Any]:
    names = ("gateway", "broker", "registry", "relay")
    return {"servers": [(name, scene.status[name]) for name in names if scene.status.get(name)]}


# -- one pipeline


def _about(scene: Scene) -> dict[str, Any]:
    report = scene.report
    return {"row": table([report], scene.kinds, scene.history)[0], "report": report, "slot": slot_of(report)}


def _states(scene: Scene) -> dict[str, Any]:
    return {"history": list(reversed(scene.report.history)), "report": scene.report}


def _batches(scene: Scene) -> dict[str, Any]:
    shown = [_batch(each) for each in scene.control.batches(scene.report.pipeline)[-_MOST_BATCHES:]]
    return {"batches": list(reversed(shown)), "phases": _PHASES, "report": scene.report}


def _batch(progress: dict[str, Any]) -> dict[str, Any]:
    durations = progress.get("durationMs") or {}
    total = durations.get("triggerExecution", 0)
    known = {phase: durations.get(phase, 0) for phase in _PHASES}
    left, segments = 0.0, []
    for number, (phase, ms) in enumerate(known.items()):
        width = 100 * ms / total if total else 0.0
        segments.append({"phase": phase, "number": number, "x": round(left, 2), "width": round(width, 2), "ms": ms})
        left += width
    return {
        "id": progress.get("batchId"),
        "at": str(progress.get("timestamp", "")).replace("T", " ")[:19],
        "rows": progress.get("numInputRows"),
        "total_ms": total,
        "segments": segments,
    }


def _positions(scene: Scene) -> dict[str, Any]:
    return {"offsets": scene.control.offsets(scene.report.pipeline)}


def _routes(scene: Scene) -> dict[str, Any]:
    found = scene.control.destinations(scene.report.pipeline)
    found.sort(key=_by_trouble)
    return {"found": found[:_MOST_DESTINATIONS], "count": len(found), "routing": scene.report.routing}


def _by_trouble(entry: dict[str, Any]) -> tuple[bool, bool, int]:
    return (entry.get("circuit", "closed") == "closed", not entry.get("error"), -entry["rows_total"])


# -- everything else


def _destinations(scene: Scene) -> dict[str, Any]:
    wanted = scene.arguments.get("filter", "").lower()
    kinds = scene.kinds["destinations"]
    found = [
        each | {"kind": kinds.get(each["destination"], "")}
        for each in scene.control.destinations()
        if not wanted or wanted in _words(each)
    ]
    found.sort(key=_by_trouble)
    page = _page_number(scene.arguments.get("page", ""), len(found))
    first = page * _MOST_DESTINATIONS
    return {
        "found": found[first : first + _MOST_DESTINATIONS],
        "count": len(found),
        "page": page,
        "pages": max(1, -(-len(found) // _MOST_DESTINATIONS)),
        "wanted": scene.arguments.get("filter", ""),
        "unreadable": unreadable,
    }


def _words(entry: dict[str, Any]) -> str:
    parts = (entry[name] or "" for name in ("pipeline", "destination", "stream", "topic"))
    return " ".join([*parts, entry.get("circuit", "")]).lower()


def _page_number(text: str, count: int) -> int:
    page = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    return min(page, max(0, (count - 1) // _MOST_DESTINATIONS))


def _letters(scene: Scene) -> dict[str, Any]:
    counted = [(report.pipeline, scene.control.dead_letters(report.pipeline).counts()) for report in scene.reports]
    return {"counted": counted}


def _snapshots(scene: Scene) -> dict[str, Any]:
    found = scene.service.snapshots()
    return {"snapshots": found[:_MOST_SNAPSHOTS], "count": len(found)}


def _events(scene: Scene) -> dict[str, Any]:
    arguments = scene.arguments
    chosen = arguments.get("destination", "")
    readable = [name for name, kind in scene.kinds["destinations"].items() if not unreadable(kind)]
    chosen = chosen or (readable[0] if readable else "")
    found: dict[str, Any] = {"chosen": chosen, "tail": None, "why": ""}
    if not chosen:
        return found | {"why": "No pipeline writes to a destination that can be read back."}
    kind = scene.kinds["destinations"].get(chosen)
    if kind is None:
        return found | {"why": f"There is no destination {chosen}."}
    if why := unreadable(kind):
        return found | {"why": f"{chosen} is a {kind} destination. {why}"}
    wanted = Wanted(*(arguments.get(name, "")[:200] for name in ("stream", "topic", "text")))
    return found | {"tail": scene.tails.read(scene.control.destination(chosen), wanted)}


def _gateway(scene: Scene) -> dict[str, Any]:
    """If the tables cannot be read, the process may still know why."""
    wanted = scene.arguments.get("filter", "")
    found: dict[str, Any] = {"gateway": scene.status.get("gateway"), "unread": "", "topics": [], "groups": []}
    found |= {"topic_count": 0, "group_count": 0, "wanted": wanted}
    try:
        return found | read_gateway(scene.service.stores(), wanted)
    except psycopg.Error as error:
        if found["gateway"] is None:
            raise
        return found | {"unread": unread(error)}


def _topic(scene: Scene) -> dict[str, Any]:
    return {"topic": find_topic(scene.service.stores(), scene.arguments.get("name", ""))}


def _messages(scene: Scene) -> dict[str, Any]:
    return find_messages(scene.service.stores(), scene.arguments)


def _group(scene: Scene) -> dict[str, Any]:
    return {"group": find_group(scene.service.stores(), scene.arguments.get("name", ""))}


def _broker(scene: Scene) -> dict[str, Any]:
    stores = scene.service.stores()
    found = {
        "process": scene.status.get("broker"),
        "known": stores.broker_url is not None,
        "broker": None,
        "unread": "",
    }
    try:
        return found | {"broker": read_broker(stores)}
    except psycopg.Error as error:
        return found | {"unread": unread(error)}


def _relay(scene: Scene) -> dict[str, Any]:
    relay = scene.status.get("relay")
    overview = (scene.service.relay_metrics() or {}).get("overview") if relay else None
    return {"relay": relay, "counters": relay["counters"] if relay else {}, "overview": overview}


PAGES = (
    Page("overview", "Overview", "/", (
        Part("strip", "Totals", _strip),
        Part("begin", "Next", _begin),
        Part("flow", "Flow", _flow),
        Part("pipelines", "Pipelines", _pipelines),
        Part("slots", "Replication slots", _slots),
        Part("servers", "Servers", _servers),
    )),
    Page("pipeline", "Pipeline", "/pipelines/{name}", (
        Part("about", "State", _about),
        Part("batches", "Batches", _batches),
        Part("routes", "Destinations", _routes),
        Part("positions", "Positions", _positions),
        Part("states", "History of states", _states),
    ), check=lambda scene: scene.report),
    Page("destinations", "Destinations", "/destinations", (Part("destinations", "Destinations", _destinations),),
         frozenset({"filter", "page"})),
    Page("events", "Live events", "/events", (Part("events", "Live events", _events),),
         frozenset({"destination", "stream", "topic", "text"}), form="events_form.html"),
    Page("letters", "Dead letters", "/dead-letters", (Part("letters", "Dead letters", _letters),)),
    Page("snapshots", "Snapshots", "/snapshots", (Part("snapshots", "Snapshots", _snapshots),)),
    Page("gateway", "Gateway", "/gateway", (Part("gateway", "Gateway", _gateway),), frozenset({"filter"}),
         form="gateway_form.html"),
    Page("gateway", "Topic", "/gateway/topic", (
        Part("topic", "Topic", _topic),
        Part("messages", "Messages", _messages),
    ), frozenset({"name", *BROWSED}), form="topic_form.html"),
    Page("gateway", "Group", "/gateway/group", (Part("group", "Group", _group),), frozenset({"name"})),
    Page("broker", "Broker", "/broker", (Part("broker", "Broker", _broker),)),
    Page("relay", "Relay", "/relay", (Part("relay", "Relay", _relay),)),
)  # fmt: skip
