"""A dashboard for Grafana and alert rules for Prometheus, made of the names in `metric_names`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headgate.model import Status
from headgate.model import metric_names as names
from headgate.model.metric_names import total

__all__ = ["ALERTS", "PANELS", "Alert", "Panel", "alert_rules", "dashboard"]

_BY = names.PIPELINE_LABEL
_RATE = "[$__rate_interval]"
_WIDTH, _HEIGHT = 8, 8
_ROW_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph: queries with their legends, and the unit of all of them."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule: when it fires, after how long, how bad that is, and what to do."""

    name: str
    expression: str
    after: str
    severity: str
    summary: str
    remedy: str


def _rate(counter: str, by: str = _BY) -> str:
    return f"sum by ({by}) (rate({total(counter)}{_RATE}))"


def _quantile(share: float, histogram: str, by: str = _BY) -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket{_RATE})))"


_LEGEND = f"{{{{{_BY}}}}}"

_OTHER = f'{names.STATUS_LABEL}!="{Status.RUNNING.value}"'
_NOT_RUNNING = f"sum by ({_BY}, {names.STATUS_LABEL}) ({names.PIPELINE_STATUS}{{{_OTHER}}} > 0)"

PANELS: dict[str, tuple[Panel, ...]] = {
    "Pipelines": (
        Panel("Events per second", "ops", ((_rate(names.ROWS), _LEGEND),)),
        Panel("Payload per second", "Bps", ((_rate(names.PAYLOAD_BYTES), _LEGEND),)),
        Panel("Not running", "short", (
            (_NOT_RUNNING, f"{_LEGEND} {{{{{names.STATUS_LABEL}}}}}"),
        )),
        Panel("Lag in rows", "short", ((names.LAG_ROWS, _LEGEND),)),
        Panel("Lag in bytes", "bytes", ((names.LAG_BYTES, _LEGEND), (names.SOURCE_LAG_BYTES, f"{_LEGEND} WAL"))),
        Panel("Lag in seconds", "s", ((names.LAG_SECONDS, _LEGEND),)),
        Panel("Duration of batches", "s", (
            (_quantile(0.5, names.BATCH_DURATION_SECONDS), f"{_LEGEND} median"),
            (_quantile(0.99, names.BATCH_DURATION_SECONDS), f"{_LEGEND} 99 %"),
        )),
        Panel("Phases of batches, 99 %", "s", (
            (_quantile(0.99, names.BATCH_PHASE_SECONDS, f"{_BY}, {names.PHASE_LABEL}"),
             f"{_LEGEND} {{{{{names.PHASE_LABEL}}}}}"),
        )),
        Panel("From commit to acknowledgement", "s", (
            (_quantile(0.5, names.COMMIT_TO_ACK_SECONDS), f"{_LEGEND} median"),
            (_quantile(0.99, names.COMMIT_TO_ACK_SECONDS), f"{_LEGEND} 99 %"),
        )),
        Panel("Errors and restarts", "ops", ((_rate(names.ERRORS), f"{_LEGEND} errors"),
                                             (_rate(names.RESTARTS), f"{_LEGEND} restarts"))),
        Panel("Parts of Spark's batches, 99 %", "s", (
            (_quantile(0.99, names.SPARK_BATCH_PART_SECONDS, f"{_BY}, {names.PART_LABEL}"),
             f"{_LEGEND} {{{{{names.PART_LABEL}}}}}"),
        )),
        Panel("Spark's rows and ends of its queries", "ops", (
            (_rate(names.SPARK_INPUT_ROWS), f"{_LEGEND} rows"),
            (_rate(names.SPARK_TERMINATIONS, f"{_BY}, {names.OUTCOME_LABEL}"),
             f"{_LEGEND} {{{{{names.OUTCOME_LABEL}}}}}"),
        )),
        Panel("Since the last delivery", "s", ((f"time() - {names.LAST_DELIVERY_TIMESTAMP_SECONDS}", _LEGEND),)),
    ),
    "Replication slots": (
        Panel("WAL kept for the slot", "bytes", ((names.SLOT_RETAINED_BYTES, _LEGEND),)),
        Panel("WAL left before the slot is lost", "bytes", ((names.SLOT_SAFE_WAL_BYTES, _LEGEND),)),
        Panel("Spool on disk", "bytes", ((names.SOURCE_SPOOL_BYTES, _LEGEND),)),
    ),
    "Routing": (
        Panel("Destinations in use", "short", ((names.DESTINATIONS_ACTIVE, _LEGEND),)),
        Panel("Circuits open", "short", ((names.DESTINATION_CIRCUIT_OPEN, _LEGEND),)),
        Panel("Dead letters", "ops", ((_rate(names.DEAD_LETTERS), _LEGEND),)),
    ),
    "Gateway": (
        Panel("Requests", "reqps", ((_rate(names.GATEWAY_REQUESTS, names.API_LABEL), f"{{{{{names.API_LABEL}}}}}"),)),
        Panel("From Produce to commit", "s", ((_quantile(0.5, names.GATEWAY_APPEND_SECONDS, ""), "median"),
                                              (_quantile(0.99, names.GATEWAY_APPEND_SECONDS, ""), "99 %"))),
        Panel("Reading for a Fetch", "s", ((_quantile(0.5, names.GATEWAY_FETCH_SECONDS, ""), "median"),
                                           (_quantile(0.99, names.GATEWAY_FETCH_SECONDS, ""), "99 %"))),
        Panel("Connections", "short", ((names.GATEWAY_CONNECTIONS, "connected"),)),
    ),
    "Broker": (
        Panel("Dead letters and parked", "short", ((names.BROKER_DEAD_LETTERS, "dead letters"),
                                                   (names.BROKER_PARKED, "parked"))),
        Panel("Subscriptions", "short", ((names.BROKER_SUBSCRIPTIONS, "subscriptions"),
                                         (names.BROKER_GROUPS, "groups"))),
        Panel("Overrun groups", "short", ((names.BROKER_OVERRUN, "overrun"),)),
        Panel("Dispatch", "s", ((_quantile(0.5, names.BROKER_DISPATCH_SECONDS, ""), "median"),
                                (_quantile(0.99, names.BROKER_DISPATCH_SECONDS, ""), "99 %"))),
    ),
    "Schema registry": (
        Panel("Requests", "reqps", ((_rate(names.REGISTRY_ANSWERED, ""), "answered"),
                                    (_rate(names.REGISTRY_REFUSED, ""), "refused"),
                                    (_rate(names.REGISTRY_FAILED, ""), "failed"))),
        Panel("Subjects and schemas", "short", ((names.REGISTRY_SUBJECTS, "subjects"),
                                                (names.REGISTRY_SCHEMAS, "schemas"))),
    ),
    "Relay": (
        Panel("Events", "ops", ((_rate(names.RELAY_EVENTS_RECEIVED, ""), "received"),
                                (_rate(names.RELAY_EVENTS_ACCEPTED, ""), "sent on"))),
        Panel("Dropped", "ops", ((_rate(names.RELAY_EVENTS_DROPPED, names.REASON_LABEL),
                                  f"{{{{{names.REASON_LABEL}}}}}"),)),
        Panel("Hosts", "short", ((names.RELAY_HOSTS, f"{{{{{names.STATUS_LABEL}}}}}"),)),
        Panel("Consumers", "short", ((names.RELAY_FANOUT_LISTENERS, "consumers"),
                                     (names.RELAY_FANOUT_CATCHING_UP, "behind"))),
        Panel("Validation", "s", ((_quantile(0.5, names.RELAY_VALIDATION_SECONDS, ""), "median"),
                                  (_quantile(0.99, names.RELAY_VALIDATION_SECONDS, ""), "99 %"))),
    ),
}  # fmt: skip

_AFTER_PIPELINE = "{{ $labels.pipeline }}"

ALERTS = (
    Alert("HeadgatePipelineFailed", f'{names.PIPELINE_STATUS}{{{names.STATUS_LABEL}="{Status.ERROR.value}"}} == 1',
          "1m", "critical", f"The pipeline {_AFTER_PIPELINE} has failed and waits for somebody",
          "headgate status names the cause and the remedy"),
    Alert("HeadgatePipelineDegraded",
          f'{names.PIPELINE_STATUS}{{{names.STATUS_LABEL}="{Status.DEGRADED.value}"}} == 1',
          "5m", "warning", f"The pipeline {_AFTER_PIPELINE} keeps failing and is tried again",
          "headgate status names the cause and the remedy"),
    Alert("HeadgateBatchFails", f"{names.FAILURES_IN_ROW} > 0", "10m", "warning",
          f"A batch of {_AFTER_PIPELINE} has failed for ten minutes", "is a destination down? See headgate status"),
    Alert("HeadgateLagGrows", f"{names.LAG_ROWS} > 0 and deriv({names.LAG_ROWS}[15m]) > 0", "15m", "warning",
          f"{_AFTER_PIPELINE} does not keep up with its source", "is a destination slow? See docs/troubleshooting.md"),
    Alert("HeadgateSlotNearLimit",
          f"{names.SLOT_RETAINED_BYTES} / ({names.SLOT_RETAINED_BYTES} + {names.SLOT_SAFE_WAL_BYTES}) > 0.8",
          "5m", "critical", f"The slot of {_AFTER_PIPELINE} is about to be lost",
          "mend the destination, or raise max_slot_wal_keep_size"),
    Alert("HeadgateSlotKeepsWal", f"{names.SLOT_RETAINED_BYTES} > 1e9 unless {names.SLOT_SAFE_WAL_BYTES}", "15m",
          "warning", f"PostgreSQL keeps more than 1 GB of WAL for {_AFTER_PIPELINE}, without a limit",
          "mend the destination; set max_slot_wal_keep_size to protect the disk"),
    Alert("HeadgateDeadLetters", f"increase({total(names.DEAD_LETTERS)}[10m]) > 0", "0m", "warning",
          f"Rows of {_AFTER_PIPELINE} are refused", "headgate dlq list names the reasons"),
    Alert("HeadgateCircuitOpen", f"{names.DESTINATION_CIRCUIT_OPEN} > 0", "5m", "warning",
          f"Destinations of {_AFTER_PIPELINE} are left alone because they fail",
          "the page of destinations shows the errors"),
    Alert("HeadgateGatewayDown", f"{names.GATEWAY_UP} == 0", "1m", "critical", "The gateway does not serve",
          "headgate status names the cause"),
    Alert("HeadgateGatewayTrouble", f"{names.GATEWAY_TROUBLE} == 1", "5m", "warning",
          "A part of the gateway does not work: {{ $labels.part }}", "headgate status names the cause"),
    Alert("HeadgateBrokerDown", f"{names.BROKER_UP} == 0", "1m", "critical", "The broker does not serve",
          "headgate status names the cause"),
    Alert("HeadgateRegistryDown", f"{names.REGISTRY_UP} == 0", "1m", "critical", "The schema registry does not serve",
          "headgate status names the cause"),
    Alert("HeadgateBrokerOverrun", f"{names.BROKER_OVERRUN} > 0", "1m", "critical",
          "A group of the broker lagged too far and has lost events", "headgate broker groups"),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in PANELS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": _ROW_WIDTH, "h": 1}, "id": len(panels) + 1})  # fmt: skip
        y += 1
        for number, panel in enumerate(row):
            x, below = number * _WIDTH % _ROW_WIDTH, number * _WIDTH // _ROW_WIDTH * _HEIGHT
            panels.append(_panel(panel, len(panels) + 1, x, y + below))
        y += -(-len(row) * _WIDTH // _ROW_WIDTH) * _HEIGHT
    return {
        "title": "headgate",
        "uid": "headgate",
        "tags": ["headgate"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": panels,
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "type": "timeseries",
        "id": number,
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }


def alert_rules() -> str:
    """The rules as a file for Prometheus."""
    lines = ["# Made by `headgate grafana export`.", "groups:", "  - name: headgate", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.after}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.remedy)}",
        ]
    return "\n".join(lines) + "\n"
