"""What the demo shows: pipelines, the last events as a consumer sees them, addresses, what to try next."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.control import Service
from headgate.control.watch import StreamWatch
from headgate.pipeline.report import Report

__all__ = ["demo_line", "demo_view"]

_COLOURS = {"running": "green", "starting": "cyan", "degraded": "yellow", "error": "red"}
_PAYLOAD_SHOWN = 88


def demo_view(service: Service, watch: StreamWatch) -> RenderableType:
    """The whole screen."""
    return Panel(
        Group(_pipelines(service), "", _events(watch), "", _addresses(service)),
        title="[bold]headgate demo[/]",
        subtitle="Ctrl-C ends it",
        border_style="cyan",
        box=box.ROUNDED,
    )


def demo_line(service: Service, watch: StreamWatch) -> str:
    """The same in one line, where there is no terminal."""
    parts = [f"{r.pipeline} {r.status.value} {r.rows_per_second:,.0f} rows/s lag {_lag(r)}" for r in service.reports()]
    return f"{'; '.join(parts)}; {watch.arrived:,} events in NATS"


def _lag(report: Report) -> str:
    return "-" if report.lag_rows is None else f"{report.lag_rows:,}"


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


def _events(watch: StreamWatch) -> Table:
    heading = f"last events in NATS ({watch.arrived:,} arrived, {watch.stored_bytes / 1e6:,.1f} MB kept)"
    table = Table("subject", heading, box=None, expand=True)
    for subject, payload in watch.last:
        shown = payload if len(payload) <= _PAYLOAD_SHOWN else payload[: _PAYLOAD_SHOWN - 1] + "…"
        table.add_row(Text(subject, style="cyan"), Text(shown, no_wrap=True))
    if not watch.last:
        table.add_row("", Text("Spark takes a few seconds to warm up ...", style="dim"))
    return table


def _addresses(service: Service) -> Table:
    table = Table(box=None, show_header=False)
    endpoints = service.endpoints
    assert endpoints is not None
    table.add_row("status", f"curl {service.url}/status", style="dim")
    table.add_row("metrics", f"curl {service.url}/metrics", style="dim")
    table.add_row("NATS", f"nats --server {endpoints.nats_url} sub 'demo.>'", style="dim")
    table.add_row("PostgreSQL", f'psql "{endpoints.postgres_url}"', style="dim")
    table.add_row("next", "headgate init && headgate run", style="bold")
    return table
