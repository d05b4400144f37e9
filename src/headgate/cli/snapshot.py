"""`headgate snapshot`: copies of whole tables for consumers, made by the running headgate."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.cli.control import ControlUrlOption, ask, running, settings_of
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, note_console, print_json
from headgate.config import Config
from headgate.model import DeliveryError

__all__ = ["snapshot"]

_POLL_S = 0.25
_ENDED = ("done", "failed", "cancelled")


def snapshot(
    table: Annotated[str | None, typer.Argument(help="The table: users, or shop.users.")] = None,
    method: Annotated[str, typer.Option("--method", help="export, filter or watermark.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end, and show progress.")] = True,
    cancel: Annotated[str | None, typer.Option("--cancel", metavar="ID", help="End a snapshot.")] = None,
    url: ControlUrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a snapshot of a table, which consumers then find in NATS. Without a table, list them.

    The running headgate (`run` or `bridge`) makes it, and goes on sending changes meanwhile.

    Examples: headgate snapshot users · headgate snapshot · headgate snapshot --cancel s1a1dfdf69f6e13b
    """
    loaded = settings_of(config, url)
    base = running(loaded, url)
    if cancel is not None:
        _print(ask(f"{base}/snapshots/{cancel}", loaded, method="DELETE"), as_json)
    elif table is None:
        _list(ask(f"{base}/snapshots", loaded)["snapshots"], as_json)
    else:
        options = {"table": table} | ({"method": method} if method else {})
        answer = ask(f"{base}/snapshots", loaded, method="POST", body=options)
        if not wait:
            _print(answer, as_json)
            return
        ended = _watch(f"{base}/snapshots/{answer['snapshot_id']}", loaded)
        _print(ended, as_json)
        if ended["state"] != "done":
            error = ended["error"] or {}
            raise DeliveryError(error.get("message", ended["state"]), remedy=error.get("remedy", ""))


def _watch(url: str, config: Config) -> dict[str, Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    with Progress(*columns, console=note_console, transient=True) as progress:
        job = ask(url, config)
        task = progress.add_task(f"{job['schema']}.{job['table']}", total=None, count="waiting")
        while job["state"] not in _ENDED:
            time.sleep(_POLL_S)
            job = ask(url, config)
            count = f"{job['rows']:,} rows · {job['rows_per_second']:,.0f} rows/s"
            progress.update(task, completed=job["rows"], total=job["rows_expected"] or None, count=count)
    return job


def _print(fields: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(fields)
    elif "accepted" in fields:
        note(f"snapshot {fields['snapshot_id']} of {fields['schema']}.{fields['table']} is being made")
    else:
        note(
            f"snapshot {fields['id']} of {fields['schema']}.{fields['table']}: {fields['state']}, "
            f"{fields['rows']:,} rows in {fields['chunks']:,} chunks, point {fields['lsn'] or '-'}"
        )


def _list(jobs: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json({"snapshots": jobs})
        return
    if not jobs:
        note("no snapshots yet; make one with: headgate snapshot TABLE")
        return
    table = Table("snapshot", "table", "state", "rows", "rows/s", "%", "point", box=None)
    for job in jobs:
        percent = "-" if job["percent"] is None else f"{job['percent']:.0f}"
        name, rate = f"{job['schema']}.{job['table']}", f"{job['rows_per_second']:,.0f}"
        table.add_row(job["id"], name, job["state"], f"{job['rows']:,}", rate, percent, job["lsn"])
    data_console.print(table)
