"""`headgate top`: the overview of the dashboard, in a terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headgate.cli.control import ControlUrlOption, ask, running, settings_of
from headgate.cli.output import ConfigOption, data_console, lag_text
from headgate.model import ConnectError

__all__ = ["top"]

_COLOURS = {"running": "green", "starting": "cyan", "degraded": "yellow", "error": "red", "paused": "blue"}
_LEVELS = {"ok": "green", "warning": "yellow", "critical": "red"}
_BLOCKS = "▁▂▃▄▅▆▇█"
_KEPT = 30

Rates = dict[str, deque[float]]


def top(
    config: ConfigOption = None,
    url: ControlUrlOption = None,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """Watch the running headgate in a terminal: health with cause and remedy, throughput, lag, slots.

    Ctrl-C ends it. Where there is no terminal, it is shown once.

    Example: headgate top --interval 1
    """
    loaded = settings_of(config, url)
    address = running(loaded, url)
    rates: Rates = {}
    if once or not data_console.is_terminal:
        data_console.print(_screen(ask(f"{address}/status", loaded), rates, address))
        return
    with Live(console=data_console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                live.update(_look(address, loaded, rates), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            return


def _look(address: str, config: Any, rates: Rates) -> RenderableType:
    """One look; a headgate that does not answer now may do so the next time."""
    try:
        return _screen(ask(f"{address}/status", config), rates, address)
    except ConnectError as error:
        return Text.assemble(("headgate does not answer: ", "bold red"), str(error))


def _screen(status: dict[str, Any], rates: Rates, address: str) -> RenderableType:
    pipelines = status["pipelines"]
    for each in pipelines:
        rates.setdefault(each["pipeline"], deque(maxlen=_KEPT)).append(each["rows_per_second"])
    parts: list[RenderableType] = [_totals(status, address), "", _table(pipelines, rates), *_troubles(pipelines)]
    if slots := [each for each in pipelines if "slot" in each["source_details"]]:
        parts += ["", _slots(slots)]
    parts += [_server(name, status[name]) for name in ("gateway", "broker", "registry", "relay") if status.get(name)]
    return Group(*parts)


def _totals(status: dict[str, Any], address: str) -> Text:
    pipelines = status["pipelines"]
    text = Text.assemble(("headgate", "bold"), f" {status.get('project', '')} {status['phase']}  ", (address, "dim"))
    text.append("\n")
    for name in ("running", "degraded", "error"):
        count = sum(each["status"] == name for each in pipelines)
        text.append(f"{count} {name}  ", _COLOURS[name] if count else "dim")
    text.append(f"{sum(each['rows_per_second'] for each in pipelines):,.0f} events/s")
    at_risk = sum(each["source_details"].get("slot_level") in ("warning", "critical") for each in pipelines)
    return text.append(f"  {at_risk} slots at risk", "red" if at_risk else "dim")


def _table(pipelines: Sequence[dict[str, Any]], rates: Rates) -> Table:
    table = Table("pipeline", "status", "from", "to", "rows", "rows/s", "", "lag", "batch p50", box=None)
    for each in pipelines:
        table.add_row(
            Text(each["pipeline"], style="bold"),
            Text(each["status"], style=_COLOURS.get(each["status"], "white")),
            Text(each["source"]),
            Text(", ".join(each["destinations"])),
            f"{each['rows_total']:,}",
            f"{each['rows_per_second']:,.0f}",
            Text(blocks(rates[each["pipeline"]]), style="cyan"),
            lag_text(each),
            f"{each['batch_seconds_p50'] * 1000:,.0f} ms",
        )
    return table


def blocks(values: Sequence[float]) -> str:
    """A sparkline of characters."""
    most = max(values, default=0.0)
    return "".join(_BLOCKS[round(value / most * (len(_BLOCKS) - 1)) if most else 0] for value in values)


def _troubles(pipelines: Sequence[dict[str, Any]]) -> list[RenderableType]:
    return [
        Text.assemble(
            (f"{each['pipeline']}: ", "bold"), (each["error"]["message"], "red"), ("\n  try: ", "green"),
            each["error"]["remedy"],
        )
        for each in pipelines
        if each["error"]
    ]  # fmt: skip


def _slots(pipelines: Sequence[dict[str, Any]]) -> Table:
    table = Table("slot", "level", "WAL kept", "left before it is lost", "spool", box=None)
    for each in pipelines:
        details = each["source_details"]
        level = details.get("slot_level", "-")
        left = details.get("slot_safe_wal_bytes")
        sizes = (details.get(name) for name in ("slot_retained_bytes", "spool_bytes"))
        kept, spool = ("-" if size is None else decimal(size) for size in sizes)
        coloured = Text(level, style=_LEVELS.get(level, "white"))
        table.add_row(
            Text(details["slot"]), coloured, kept, "no limit" if left is None else decimal(max(0, left)), spool
        )
    return table


def _server(name: str, server: dict[str, Any]) -> Text:
    colour = _COLOURS.get(server["status"], "white")
    where = server.get("advertised") or server.get("url") or ""
    more = f" {where}, {server['connections']:,} connections"
    return Text.assemble((f"{name} ", "bold"), (server["status"], colour), more)
