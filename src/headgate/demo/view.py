"""What the demo shows: pipelines, the last events, the log, the broker, addresses, what to try next."""

from __future__ import annotations

import json
import os

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.control import Service
from headgate.demo.broker import DemoBroker
from headgate.demo.firehose import relay_line
from headgate.demo.log import DemoLog
from headgate.demo.replica import DemoReplica
from headgate.demo.watch import StreamWatch
from headgate.pipeline.report import Report

__all__ = ["demo_line", "demo_view"]

_COLOURS = {"running": "green", "starting": "cyan", "degraded": "yellow", "error": "red"}


def demo_view(
    service: Service, watches: list[StreamWatch], log: DemoLog, broker: DemoBroker, replica: DemoReplica
) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [
        _pipelines(service),
        "",
        _events(watches),
        "",
        _kept(log),
        _orders(broker),
        _copy(replica),
    ]
    if relay := service.status()["relay"]:
        parts.append(Text.assemble(("relay              ", "bold"), (relay_line(relay), "green")))
    return Panel(
        Group(*parts, "", _addresses(service, log, broker, replica)),
        title="[bold]headgate demo[/]",
        subtitle="Ctrl-C ends it",
        border_style="cyan",
        box=box.ROUNDED,
    )


def demo_line(
    service: Service, watches: list[StreamWatch], log: DemoLog, broker: DemoBroker, replica: DemoReplica
) -> str:
    """Return the state of the demo as one line, for where there is no terminal."""
    parts = [f"{r.pipeline} {r.status.value} {r.rows_per_second:,.0f} rows/s lag {_lag(r)}" for r in service.reports()]
    parts.append(f"{sum(watch.arrived for watch in watches):,} events in NATS")
    parts.append(f"{log.messages:,} messages in the log at {log.bootstrap}")
    parts.append(f"{broker.handled:,} orders handled")
    if relay := service.status()["relay"]:
        parts.append(relay_line(relay))
    parts.append(f"replica {replica.state}")
    return "; ".join(parts)


def _lag(report: Report) -> str:
    return "-" if report.lag_rows is None else f"{report.lag_rows:,} rows"


def _pipelines(service: Service) -> Table:
    table = Table("pipeline", "status", "from", "to", "rows", "rows/s", "lag", "batch", box=None, expand=True)
    for r in service.reports():
        table.add_row(
            r.pipeline,
            Text(r.status.value, style=_COLOURS.get(r.status.value, "white")),
            r.source,
            ", ".join(r.destinations),
            f"{r.rows_total:,}",
            f"{r.rows_per_second:,.0f}",
            _lag(r),
            f"{r.batch_seconds_p50 * 1000:,.0f} ms",
        )
        if r.error:
            table.add_row("", Text(r.error["message"][:100], style="red"))
    return table


def _events(watches: list[StreamWatch]) -> Table:
    arrived = sum(watch.arrived for watch in watches)
    kept = sum(watch.stored_bytes for watch in watches) / 1e6
    table = Table("subject", f"last events in NATS ({arrived:,} arrived, {kept:,.1f} MB kept)", box=None, expand=True)
    for watch in watches:
        for subject, payload in watch.last:
            shown = Text(_gist(payload), no_wrap=True, overflow="ellipsis")
            table.add_row(Text(subject, style="cyan", no_wrap=True), shown)
    if not arrived:
        table.add_row("", Text("Spark takes a few seconds to warm up ...", style="dim"))
    return table


def _gist(payload: str) -> str:
    """Of a change, the row alone; the envelope around it does not fit a line."""
    try:
        return json.dumps(json.loads(payload)["data"])
    except (ValueError, KeyError, TypeError):
        return payload


def _kept(log: DemoLog) -> Text:
    state = f"{log.messages:,} messages in PostgreSQL, bootstrap.servers={log.bootstrap}"
    return Text.assemble(("log for Kafka      ", "bold"), (state, "green" if log.messages else "dim"))


def _orders(broker: DemoBroker) -> Text:
    state = f"{broker.handled:,} orders handled; {broker.last}" if broker.handled else "waiting for the first order"
    return Text.assemble(("broker             ", "bold"), (state, "green" if broker.handled else "dim"))


def _copy(replica: DemoReplica) -> Text:
    colour = {True: "green", False: "red", None: "dim"}[replica.exact]
    return Text.assemble(("replica in SQLite  ", "bold"), (replica.state, colour))


def _addresses(service: Service, log: DemoLog, broker: DemoBroker, replica: DemoReplica) -> Table:
    table = Table(box=None, show_header=False)
    endpoints = service.endpoints
    assert endpoints is not None
    table.add_row("dashboard", service.url or "", style="bold")
    table.add_row("status", f"curl {service.url}/status", style="dim")
    table.add_row("metrics", f"curl {service.url}/metrics", style="dim")
    table.add_row("NATS", f"nats --server {endpoints.nats_url} sub 'cdc.>'", style="dim")
    table.add_row("Kafka", f"kcat -b {log.bootstrap} -L", style="dim")
    table.add_row("", log.kcat_command, style="dim")
    table.add_row("SQL", log.sql_command, style="dim")
    table.add_row("broker", broker.curl_command, style="dim")
    table.add_row("replica", f"sqlite3 {os.path.relpath(replica.path)} .tables", style="dim")
    table.add_row("next", "headgate init && headgate run", style="bold")
    return table
