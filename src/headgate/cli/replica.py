"""`headgate replica`: an exact copy of tables in SQLite, DuckDB or PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine, Iterator
from typing import Annotated, Any, Literal

import typer
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from headgate.cli.environment import nats_url
from headgate.cli.output import JsonOption, data_console, note, note_console, print_json
from headgate.consume.link import Link
from headgate.model import HeadgateError, UsageError
from headgate.replica import Progress as ReplicaProgress
from headgate.replica import Replica, TableReport, Target, open_target, stop, verify
from headgate.replica.lag import has_applied, last_sequence
from headgate.replica.verify import Source
from headgate.runtime.ending import stopped_by_signals

__all__ = ["replica"]

replica = typer.Typer(
    help="Keep an exact copy of tables in SQLite, DuckDB or PostgreSQL, over NATS alone.",
    no_args_is_help=True,
    epilog="Begin with: headgate replica run --target sqlite:///shop.db --tables users,orders",
)

_SHOWN_KEYS = 10

TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        envvar="HEADGATE_TARGET",
        help="sqlite:///file.db, duckdb:///file.duckdb or postgresql://... (one more / for an absolute path).",
    ),
]
NatsOption = Annotated[
    str | None, typer.Option("--nats", envvar="HEADGATE_NATS", help="nats://...", show_default="nats://localhost:4222")
]
StreamOption = Annotated[str, typer.Option("--stream", help="The bridge's stream of changes.")]
InitOption = Annotated[
    str, typer.Option("--init-stream", help="The bridge's stream of snapshots.", show_default="INIT, or INIT_STREAM")
]
BucketOption = Annotated[
    str,
    typer.Option("--schema-bucket", help="The bridge's bucket of schemas.", show_default="schemas, or schemas_STREAM"),
]
TablesOption = Annotated[
    str,
    typer.Option("--tables", help="Names separated by commas: users,shop.orders; * for all, later ones too."),
]


@replica.command()
def run(
    target: TargetOption,
    tables: TablesOption = "*",
    nats: NatsOption = None,
    stream: StreamOption = "CDC",
    init_stream: InitOption = "",
    schema_bucket: BucketOption = "",
    once: Annotated[bool, typer.Option("--once", help="Apply what is there now, then stop.")] = False,
    on_dropped: Annotated[
        Literal["keep", "drop"],
        typer.Option("--on-dropped", help="What becomes of a table that the source publishes no more."),
    ] = "keep",
) -> None:
    """Copy the tables, then apply every transaction as it comes, until Ctrl-C.

    The first time, and for each new table, the rows come from a snapshot that the bridge makes. After that each
    transaction of the source is applied whole, with the position in the same commit: stop or kill this command at any
    time and start it again, and it goes on exactly where it was. A table of the target that no replica made is never
    touched.

    Example: headgate replica run --target sqlite:///shop.db --tables users,orders
    """
    with _opened(target) as opened, _shown() as show:
        kept = Replica(
            opened, _nats(nats), _names(tables), cdc_stream=stream, init_stream=init_stream,
            schema_bucket=schema_bucket, on_progress=show, on_dropped=on_dropped,
        )  # fmt: skip
        _run(_follow(kept, once=once))
    for table, reason in kept.aside.items():
        note(f"{table} is set aside: {reason}")
    if kept.aside:
        raise typer.Exit(1)


@replica.command()
def status(
    target: TargetOption,
    nats: NatsOption = None,
    stream: StreamOption = "CDC",
    schema_bucket: BucketOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what the target holds, and how far it is behind the stream. Exits with 1 when it holds no replica."""
    with _opened(target) as opened:
        position, schemas = opened.load()
        gone, aside = opened.gone(), opened.aside()
        found = {
            "position": None if position is None else {"sequence": position["sequence"], "msg_id": position["msg_id"]},
            "tables": [
                {
                    "table": str(name),
                    "rows": opened.count(schema),
                    "schema_version": schema.version,
                    "joined": position is not None and name.key in position["tables"],
                    "gone": name in gone,
                    "set_aside": aside.get(name),
                }
                for name, schema in sorted(schemas.items())
            ],
            "set_aside": {str(name): reason for name, reason in sorted(aside.items())},
            "last_sequence": _run(_last(_nats(nats), stream, list(schemas), schema_bucket)) if schemas else None,
        }
    if as_json:
        print_json(found)
    else:
        _show_status(found)
    if position is None:
        raise typer.Exit(1)


@replica.command(name="verify")
def verify_command(
    target: TargetOption,
    source: Annotated[str, typer.Option("--source", envvar="HEADGATE_POSTGRES", help="postgres://... of the origin.")],
    nats: NatsOption = None,
    stream: StreamOption = "CDC",
    init_stream: InitOption = "",
    schema_bucket: BucketOption = "",
    slot: Annotated[
        str | None, typer.Option("--slot", help="The bridge's slot.", show_default="all slots of the database")
    ] = None,
    publication: Annotated[
        str | None,
        typer.Option("--publication", help="The bridge's, if several have the tables.", show_default="all of them"),
    ] = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up", help="Apply what is in the stream first, if no replica runs.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Copy a table that differs again.")] = False,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for the replica to catch up.")] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Compare every row with the source, while both go on changing. Exits with 1 when something differs.

    The source is read first, then the replica once it has applied all that was committed by then. Rows that changed
    meanwhile are compared again. Prints "exact", or the keys of rows that are missing, extra or different.

    Example: headgate replica verify --target sqlite:///shop.db --source postgres://reader@localhost/shop
    """
    url = _nats(nats)
    names = None if publication is None else [name.strip() for name in publication.split(",")]
    places: dict[str, Any] = {"cdc_stream": stream, "init_stream": init_stream, "schema_bucket": schema_bucket}
    with _opened(target) as opened, contextlib.closing(Source(source, slot, names)) as origin:
        tables = [str(name) for name in opened.load()[1]]
        if catch_up and tables:
            _run(_follow(Replica(opened, url, tables, **places), once=True))
        reports = _run(_verify(origin, opened, url, stream, schema_bucket, wait_s))
        wrong = [str(report.table) for report in reports if report.can_mend]
        if repair and wrong:
            note(f"copying again: {', '.join(wrong)}")
            _run(_follow(Replica(opened, url, tables, repair=wrong, **places), once=True))
            reports = _run(_verify(origin, opened, url, stream, schema_bucket, wait_s))
    if as_json:
        print_json([_report(report) for report in reports])
    else:
        _show_reports(reports)
    if not all(report.is_exact for report in reports):
        raise typer.Exit(1)


def _nats(url: str | None) -> str:
    if url is None and "NATS_HOST" in os.environ:
        return nats_url(os.environ)
    return url or "nats://localhost:4222"


def _names(tables: str) -> list[str] | Literal["*"]:
    if tables.strip() == "*":
        return "*"
    names = [name.strip() for name in tables.split(",") if name.strip()]
    if not names:
        raise UsageError("no table is named", where="--tables", remedy="--tables users,orders, or leave it out for all")
    return names


@contextlib.contextmanager
def _opened(url: str) -> Iterator[Target]:
    target = open_target(url)
    try:
        yield target
    finally:
        target.close()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def _follow(kept: Replica, *, once: bool) -> None:
    """SIGTERM ends it like Ctrl-C: after the commit that is under way."""
    task = asyncio.create_task(kept.run(once=once))
    asked = stopped_by_signals()
    waiting = asyncio.create_task(asked.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await stop(task)
    if asked.is_set():
        note("stopped; everything that was applied is kept")


async def _last(url: str, stream: str, tables: list[Any], bucket: str) -> int | None:
    try:
        link = await Link.open(url, name="headgate-replica-status")
    except HeadgateError:
        return None  # what the target holds can be told without it
    try:
        return await last_sequence(link, stream, tables, bucket)
    finally:
        await link.close()


async def _verify(
    source: Source, target: Target, url: str, stream: str, bucket: str, wait_s: float
) -> list[TableReport]:
    link = await Link.open(url, name="headgate-replica-verify")
    try:
        return await verify(source, target, lambda: has_applied(link, target, stream, bucket), wait_s=wait_s)
    finally:
        await link.close()


@contextlib.contextmanager
def _shown() -> Iterator[Any]:
    """A line that moves: rows of a snapshot, then changes. Without a terminal, the log alone."""
    logging.basicConfig(
        level=logging.INFO, format="%(message)s", handlers=[RichHandler(console=note_console, show_path=False)]
    )
    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=note_console, disable=not note_console.is_terminal) as bar:
        task = bar.add_task("connecting", total=None, rate="")

        def show(now: ReplicaProgress) -> None:
            if now.table:
                bar.update(
                    task, description=f"copying {now.table}", completed=now.snapshot_rows, total=now.snapshot_total
                )
            else:
                what = "up to date" if now.caught_up else "applying changes"
                bar.update(task, description=what, completed=now.changes, total=None)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.0f}/s" if speed else "")

        yield show


def _show_status(found: dict[str, Any]) -> None:
    if found["position"] is None:
        note("no replica here; make one with: headgate replica run")
        return
    table = Table("table", "rows", "shape", "", box=None)
    for each in found["tables"]:
        state = "[green]joined[/]" if each["joined"] else "[yellow]is copied anew[/]"
        if each["gone"]:
            state = "[yellow]kept; published no more[/]"
        if each["set_aside"]:
            state = "[red]set aside[/]"
        table.add_row(each["table"], f"{each['rows']:,}", each["schema_version"], state)
    data_console.print(table)
    for name, reason in found["set_aside"].items():
        note(f"{name} is set aside: {reason}")
    sequence, last = found["position"]["sequence"], found["last_sequence"]
    behind = "NATS does not answer" if last is None else "up to date" if last <= sequence else f"stream is at {last:,}"
    note(f"at sequence {sequence:,} · {behind}")


def _report(report: TableReport) -> dict[str, Any]:
    return {
        "table": str(report.table),
        "rows": report.row_count,
        "exact": report.is_exact,
        "problem": report.problem or None,
        "gone": report.is_gone,
        "differences": [{"key": list(each.key), "kind": each.kind} for each in report.differences],
        "busy": [list(key) for key in report.busy],
    }


def _show_reports(reports: list[TableReport]) -> None:
    for report in reports:
        if report.is_gone or report.problem:
            word = "[yellow]gone[/]" if report.is_gone else "[red]differs[/]"
            why = "the source publishes it no more; it is kept here" if report.is_gone else report.problem
            data_console.print(f"{word}  {report.table}  {why}")
            continue
        if report.is_exact:
            data_console.print(f"[green]exact[/]  {report.table}  {report.row_count:,} rows")
            continue
        data_console.print(f"[red]differs[/]  {report.table}  {len(report.differences):,} of {report.row_count:,} rows")
        for each in report.differences[:_SHOWN_KEYS]:
            data_console.print(f"  {each.kind}: {', '.join(map(str, each.key))}", markup=False)
        if report.busy:
            data_console.print(f"  {len(report.busy)} rows changed all the time; verify again when it is quieter")
