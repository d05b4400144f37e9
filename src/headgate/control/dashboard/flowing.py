"""From reports of pipelines to what the overview shows: totals, the picture of the flow, a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from headgate.control.dashboard.history import KEPT_S, History
from headgate.control.dashboard.picture import Flow, Node, draw_flow, spark
from headgate.control.dashboard.shown import health
from headgate.model import Status
from headgate.pipeline.report import Report

__all__ = ["flow", "strip", "table"]

Kinds = Mapping[str, Mapping[str, str]]
_AT_RISK = ("warning", "critical")


def strip(reports: Sequence[Report], history: History) -> dict[str, Any]:
    """The totals."""
    counts = Counter(health(report.status.value) for report in reports)
    seconds = [lag for report in reports if (lag := lag_seconds(report, history)) is not None]
    sizes = [lag for report in reports if (lag := lag_bytes(report)) is not None]
    return {
        "healthy": counts["good"],
        "warn": counts["warn"],
        "bad": counts["bad"],
        "idle": counts["idle"],
        "events_per_second": sum(report.rows_per_second for report in reports),
        "bytes_per_second": sum(history.bytes_per_second(report.pipeline) for report in reports),
        "worst_seconds": max(seconds, default=None),
        "worst_bytes": max(sizes, default=None),
        "at_risk": sum(report.source_details.get("slot_level") in _AT_RISK for report in reports),
        "slots": sum("slot" in report.source_details for report in reports),
        "rows_total": sum(report.rows_total for report in reports),
    }


def lag_seconds(report: Report, history: History) -> float | None:
    """What the source says; else what can be concluded from the rows that it says wait; None if it says nothing."""
    return report.lag_seconds if report.lag_seconds is not None else history.behind_s(report.pipeline)


def lag_bytes(report: Report) -> int | None:
    """Bytes at the source, of a CDC source those of WAL that are not confirmed."""
    return report.lag_bytes if report.lag_bytes is not None else report.source_details.get("lag_bytes")


def table(reports: Sequence[Report], kinds: Kinds, history: History) -> list[dict[str, Any]]:
    """A row for each pipeline, those in trouble first."""
    rows = [_row(report, kinds, history) for report in reports]
    return sorted(rows, key=lambda row: {"bad": 0, "warn": 1}.get(row["health"], 2))


def _row(report: Report, kinds: Kinds, history: History) -> dict[str, Any]:
    return {
        "name": report.pipeline,
        "url": pipeline_url(report.pipeline),
        "status": report.status.value,
        "health": health(report.status.value),
        "since": report.status_since,
        "error": report.error,
        "last_error": report.last_error,
        "failures_in_row": report.failures_in_row,
        "failing_batch": report.failing_batch,
        "source": report.source,
        "source_kind": kinds["sources"].get(report.source, ""),
        "destinations": report.destinations,
        "rows_total": report.rows_total,
        "bytes_total": report.bytes_total,
        "per_second": report.rows_per_second,
        "bytes_per_second": history.bytes_per_second(report.pipeline),
        "lag_rows": report.lag_rows,
        "lag_bytes": lag_bytes(report),
        "lag_seconds": lag_seconds(report, history),
        "spark": spark(history.rates(report.pipeline), KEPT_S),
        "set_aside": report.source_details.get("rows_set_aside") or 0,
        "dead_letters": report.routing.get("dead_letters_total", 0),
        "last_delivery": report.last_delivery,
    }


def pipeline_url(name: str) -> str:
    """The page of a pipeline."""
    return f"/dashboard/pipelines/{quote(name, safe='')}"


def flow(reports: Sequence[Report], kinds: Kinds, history: History) -> Flow:
    """The picture: where rows come from, and where they go."""
    return draw_flow(
        {report.source: _source(report, kinds) for report in reports},
        {report.pipeline: _pipeline(report) for report in reports},
        _destinations(reports, kinds, history),
        {report.pipeline: (report.source, report.rows_per_second) for report in reports},
        {
            report.pipeline: [(to, _edge_rate(report, to, history)) for to in report.destinations]
            for report in reports
        },
    )  # fmt: skip


def _edge_rate(report: Report, destination: str, history: History) -> float:
    """Without routes, every row goes to every destination."""
    if not report.routing:
        return report.rows_per_second
    return history.edge_rate(report.pipeline, destination) or 0.0


def _source(report: Report, kinds: Kinds) -> Node:
    """By what it says of itself; of one that says nothing, that its pipeline runs is all that is known."""
    details, level = report.source_details, report.source_details.get("slot_level")
    own = _first(details, "reader", "server")
    if details.get("error"):
        condition, says = "bad", "cannot be read"
    elif level in _AT_RISK:
        condition, says = "bad" if level == "critical" else "warn", f"WAL {level}"
    elif own:
        condition, says = "good" if own in ("streaming", "listening") else "idle", own
    else:
        is_running = report.status is Status.RUNNING
        condition, says = ("good", "is read") if is_running else ("idle", report.status.value)
    return Node(report.source, kinds["sources"].get(report.source, ""), condition, says, pipeline_url(report.pipeline))


def _first(details: Mapping[str, Any], *names: str) -> str:
    return next((str(details[name]) for name in names if details.get(name)), "")


def _pipeline(report: Report) -> Node:
    says = report.status.value
    if report.failures_in_row:
        says = f"{says}, failed {report.failures_in_row} times"
    kind = f"{report.rows_total:,} rows"
    return Node(report.pipeline, kind, health(report.status.value), says, pipeline_url(report.pipeline))


def _destinations(reports: Sequence[Report], kinds: Kinds, history: History) -> dict[str, Node]:
    found = {}
    for report in reports:
        for name in report.destinations:
            condition, says = _destination_health(report, name, history.open_circuits(report.pipeline, name))
            if name not in found or condition in ("bad", "warn"):
                kind = kinds["destinations"].get(name, "")
                url = f"/dashboard/destinations?filter={quote(name, safe='')}"
                found[name] = Node(name, kind, condition, says, url)
    return found


def _destination_health(report: Report, name: str, open_circuits: int) -> tuple[str, str]:
    """By the breakers of its topics, and by whether the pipeline's trouble is here."""
    if open_circuits:
        return "warn", f"{open_circuits} circuit{'s' if open_circuits > 1 else ''} open"
    if report.error and report.error.get("where", "").startswith(f"destinations.{name}"):
        return health(report.status.value) if report.status.value != "running" else "warn", "does not take rows"
    if topics := report.routing.get("destinations_active", 0):
        return "good", f"{topics:,} topics"
    return ("good", "takes rows") if report.rows_total else ("idle", "no rows yet")
