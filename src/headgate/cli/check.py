"""`headgate check`: does everything headgate needs work, and if not, what mends it?"""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import typer
from rich.table import Table

from headgate.cli.bridge import bridge_settings
from headgate.cli.output import ConfigOption, JsonOption, data_console, note, print_json
from headgate.config import Config, load
from headgate.control.checks import Check, Outcome, run_checks
from headgate.model import UsageError

__all__ = ["check"]

_MARKS = {Outcome.OK: "[green]ok[/]", Outcome.WARN: "[yellow]warn[/]", Outcome.FAIL: "[red]FAIL[/]"}


def check(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also start Spark and run a job on its workers (takes seconds).")
    ] = False,
    postgres: Annotated[
        str | None, typer.Option("--postgres", envvar="HEADGATE_POSTGRES", help="Check a bridge: its database.")
    ] = None,
    nats: Annotated[
        str | None, typer.Option("--nats", envvar="HEADGATE_NATS", help="Check a bridge: its NATS.")
    ] = None,
    slot: Annotated[str | None, typer.Option("--slot", help="Check a bridge, without a file: its slot.")] = None,
    pub: Annotated[str | None, typer.Option("--pub", help="Check a bridge: its publication.")] = None,
    stream: Annotated[str, typer.Option("--stream", help="Check a bridge: its stream.")] = "CDC",
    ddl_trigger: Annotated[
        bool, typer.Option("--ddl-trigger", help="Only print the SQL of the optional trigger that reports DDL at once.")
    ] = False,
) -> None:
    """Check servers, privileges, Java and Spark live; a failure comes with the SQL or command that mends it.

    Exits with 1 when a check fails. A cluster's workers are always tried, local ones with --spark.

    Example: headgate check --slot shop --pub shop --postgres postgres://bridge@localhost/shop --nats nats://localhost
    """
    if ddl_trigger:
        typer.echo(resources.files("headgate.sources.postgres_cdc").joinpath("ddl_trigger.sql").read_text(), nl=False)
        return
    if slot is None and pub is None:
        loaded = load(config)
    elif slot is None or pub is None:
        raise UsageError("a bridge has a slot and a publication", remedy="give --slot and --pub")
    else:
        loaded = Config.model_validate(bridge_settings(slot, pub, postgres, nats, stream=stream))
    checks = list(run_checks(loaded, start_spark=spark))
    if as_json:
        print_json([c.as_dict() for c in checks])
    else:
        _show(checks)
    if any(c.outcome is Outcome.FAIL for c in checks):
        raise typer.Exit(1)


def _show(checks: list[Check]) -> None:
    table = Table("", "check", "found", box=None, pad_edge=False)
    for item in checks:
        table.add_row(_MARKS[item.outcome], item.subject, item.found)
    data_console.print(table)
    fixes = [item for item in checks if item.fix]
    for item in fixes:
        data_console.print(f"\n{item.subject}:\n    {item.fix}", markup=False, soft_wrap=True)
    if not fixes:
        note("all good; next: headgate run")
