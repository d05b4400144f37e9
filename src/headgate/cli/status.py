"""`headgate status`: how the running pipelines are doing."""

from __future__ import annotations

from typing import Any

import typer
from rich.table import Table

from headgate.cli.control import ControlUrlOption, ask, control_url, settings_of
from headgate.cli.output import ConfigOption, JsonOption, data_console, lag_text, note, print_json
from headgate.control.state_lock import StateLock

__all__ = ["status"]

_COLOURS = {"running": "green", "starting": "cyan", "degraded": "yellow", "error": "red"}


def status(config: ConfigOption = None, url: ControlUrlOption = None, as_json: JsonOption = False) -> None:
    """Show the pipelines of the running headgate: state, rows, rate, lag, last error with its remedy.

    Exits with 1 when nothing is running, headgate still starts, or a pipeline is not healthy.
    """
    loaded = settings_of(config, url)
    url = url.rstrip("/") if url else control_url(loaded)
    if url is None:
        owner = StateLock(loaded.project.data_dir).owner()
        if as_json:
            print_json({"running": False, "pid": owner, "pipelines": []})
        elif owner is not None:
            note(f"process {owner} is just starting or ending; ask again")
        else:
            note("not running; start with: headgate run")
        raise typer.Exit(1)
    answer = ask(f"{url}/status", loaded)
    if as_json:
        print_json({"running": True, "url": url} | answer)
    else:
        _show(url, answer)
    if answer["phase"] == "starting" or any(
        p["status"] in ("degraded", "error") for p in [*answer["pipelines"], *_servers(answer).values()]
    ):
        raise typer.Exit(1)


def _servers(answer: dict[str, Any]) -> dict[str, Any]:
    """What runs beside the pipelines."""
    return {name: answer[name] for name in ("gateway", "broker", "registry", "relay") if answer.get(name)}


def _show(url: str, answer: dict[str, Any]) -> None:
    table = Table("pipeline", "status", "rows", "rows/s", "lag", "batch p50", "source", "destinations", box=None)
    for p in answer["pipelines"]:
        table.add_row(
            p["pipeline"],
            f"[{_COLOURS.get(p['status'], 'white')}]{p['status']}[/]",
            f"{p['rows_total']:,}",
            f"{p['rows_per_second']:,.0f}",
            lag_text(p),
            f"{p['batch_seconds_p50'] * 1000:.0f} ms",
            p["source"],
            ", ".join(p["destinations"]),
        )
    if answer["pipelines"]:
        data_console.print(table)
    for p in answer["pipelines"]:
        if p["error"]:
            data_console.print(f"{p['pipeline']}: {p['error']['message']}", style="red", markup=False)
            data_console.print(f"  try: {p['error']['remedy']}", markup=False)
        if aside := p["source_details"].get("rows_set_aside"):
            text = f"{p['pipeline']}: {aside:,} rows could not be read and are set aside"
            data_console.print(text, style="red", markup=False)
            data_console.print(f"  try: headgate dlq list {p['pipeline']} --reason unreadable", markup=False)
    for name, server in _servers(answer).items():
        colour = _COLOURS.get(server["status"], "white")
        text = f"[{colour}]{server['status']}[/], {server['connections']:,} connections, started again"
        address = server.get("advertised") or server.get("url")
        data_console.print(f"{name} {address}: {text} {server['restarts_total']:,} times")
    if answer["phase"] != "running":
        note(f"{answer['phase']}: {answer['doing']}" if answer["doing"] else answer["phase"])
    note(f"{answer['project']} {answer['version']} · up {answer['uptime_seconds']:.0f} s · {url}")
