"""Puts the commands together, and turns errors into one message, a remedy and an exit code.

Exit codes: 0 fine; 1 a check failed or nothing is running; 2 wrong usage; 3 wrong configuration; 4 something
cannot be reached or is missing; 5 data, state or delivery; 70 a bug in headgate; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli.output import note, print_error
from headgate.model import DependencyError, HeadgateError, InternalError
from headgate.model.extras import missing_extra
from headgate.runtime.disk import disk_error

__all__ = ["app", "main"]

_EPILOG = (
    "Exit codes: 0 fine · 1 check failed or not running · 2 usage · 3 configuration · 4 cannot connect · "
    "5 data, state or delivery · 70 bug · 130 interrupted"
)

app = typer.Typer(
    name="headgate",
    help="Turns PostgreSQL and other sources into event streams.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# What `headgate --help` says of each, so that it imports none of them; a test compares.
_COMMANDS = {
    "demo": "See events flow: embedded PostgreSQL, NATS and Spark, pipelines, gateway, broker, replica, a live view.",
    "init": "Write a commented headgate.toml that runs as it is, on the embedded servers.",
    "validate": "Check the configuration file, offline: every problem with its key, line and remedy.",
    "check": "Check servers, privileges, Java and Spark live; a failure comes with the SQL or command that mends it.",
    "explain": "Say of sample rows: rule -> destination -> partition -> verdict -> what would be created.",
    "run": "Run every enabled pipeline until Ctrl-C, SIGTERM or POST /shutdown.",
    "bridge": "Stream every committed change of a publication to NATS JetStream, until Ctrl-C.",
    "registry": "Keep Avro, JSON and Protobuf schemas in PostgreSQL for Confluent's clients, until Ctrl-C.",
    "snapshot": "Make a snapshot of a table, which consumers then find in NATS.",
    "status": "Show the pipelines of the running headgate: state, rows, rate, lag, last error with its remedy.",
    "top": "Watch the running headgate in a terminal: health with cause and remedy, throughput, lag, slots.",
    "doctor": "Gather configuration, versions, status, slots, locks and logs into one file, to attach to a bug report.",
    "reload": "Let the running headgate read routes, mappings and lists of its file again, between two batches.",
    "up": "Start the embedded PostgreSQL and NATS, print their addresses, and keep them running until Ctrl-C.",
    "reset": "Delete a pipeline's state and checkpoint: its rows are delivered again from the start, with new ids.",
    "schema": "Print the JSON Schema of headgate.toml, for completion and checks in your editor.",
    "warm": "Compile the decoders and archive the Java classes that Spark loads: a minute now, seconds at every start.",
}
_GROUPS = {
    "pipeline": "Look at and steer a pipeline of the running headgate.",
    "dlq": "Rows that were refused, with the reason: see them, send them on, throw them away.",
    "state": "What a pipeline remembers between runs.",
    "replica": "Keep an exact copy of tables in SQLite, DuckDB or PostgreSQL, over NATS alone.",
    "broker": "A message broker made of SQL, in your database: install it, publish, follow topics, look after groups.",
    "gateway": "Let Kafka clients write to and read from PostgreSQL, until Ctrl-C.",
    "eventlog": "A log of events in files: serve it over WebSocket and HTTP.",
    "shadow": "Topics mirrored to another Kafka: see how far, and move over.",
    "relay": "A relay of the AT Protocol: run it, or simulate a network for it.",
    "grafana": "A dashboard for Grafana and alert rules for Prometheus.",
}
_ALL = {**_COMMANDS, **_GROUPS}
_ELSEWHERE = {"reload": "pipeline"}  # commands that are not in a module of their own name


def _asked() -> str | None:
    """The command that the console script was called with, or is to be completed; None where others use `app`."""
    program = Path(sys.argv[0])
    if program.stem != "headgate" and (program.stem, program.parent.name) != ("__main__", "headgate"):
        return None  # others may be started with `python -m`, too
    words = os.environ["COMP_WORDS"].split()[1:] if "COMP_WORDS" in os.environ else sys.argv[1:]
    return next((word for word in words if not word.startswith("-")), "")


def _add(name: str) -> None:
    found = getattr(import_module(f"headgate.cli.{_ELSEWHERE.get(name, name)}"), name)
    if name in _GROUPS:
        app.add_typer(found, name=name)
    else:
        app.command()(found)


def _mention(name: str) -> None:
    """Put a command into the list of all, without what it does."""
    if name in _GROUPS:
        app.add_typer(typer.Typer(help=_GROUPS[name]), name=name)
    else:
        app.command(name, help=_COMMANDS[name])(lambda: None)


def _add_commands(asked: str | None) -> None:
    """Import the command that was asked for and no other: a relay must not weigh what a pipeline weighs."""
    for name in _ALL:
        if asked is None or name == asked:
            _add_or_tell(name)
        else:
            _mention(name)


def _add_or_tell(name: str) -> None:
    """Import a command; if a package is not installed, keep what to do about it for `main`."""
    try:
        _add(name)
    except ModuleNotFoundError as error:
        told = missing_extra(error, name)
        if told is None:
            raise
        _missing.append(told)


_missing: list[DependencyError] = []
_add_commands(_asked())


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headgate {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="HEADGATE_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Options that come before the command."""
    _settings["debug"] = debug


_settings = {"debug": False}


def main() -> None:
    """Entry point of the console script."""
    try:
        if _missing:
            raise _missing[0]
        app()
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(130)
    except HeadgateError as error:
        _fail(error)
    except Exception as error:
        known = _known(error)
        if known is not None:
            _fail(known)
        if _settings["debug"]:
            traceback.print_exc()
        _fail(InternalError(f"{type(error).__name__}: {error}", remedy="run again with: headgate --debug ..."))


def _known(error: Exception) -> HeadgateError | None:
    if isinstance(error, ModuleNotFoundError):
        return missing_extra(error, _asked() or "")
    return disk_error(error) if isinstance(error, OSError) else None


def _fail(error: HeadgateError) -> None:
    if _settings["debug"]:
        traceback.print_exception(error)
    print_error(error)
    sys.exit(error.exit_code)
