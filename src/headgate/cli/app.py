"""Puts the commands together, and turns errors into one message, a remedy and an exit code.

Exit codes: 0 fine; 1 a check failed or nothing is running; 2 wrong usage; 3 wrong configuration; 4 something
cannot be reached or is missing; 5 data, state or delivery; 70 a bug in headgate; 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli.bridge import bridge
from headgate.cli.broker import broker
from headgate.cli.check import check
from headgate.cli.demo import demo
from headgate.cli.dlq import dlq
from headgate.cli.eventlog import eventlog
from headgate.cli.explain import explain
from headgate.cli.gateway import gateway
from headgate.cli.init import init
from headgate.cli.output import note, print_error
from headgate.cli.pipeline import pipeline, reload
from headgate.cli.relay import relay
from headgate.cli.replica import replica
from headgate.cli.reset import reset
from headgate.cli.run import run
from headgate.cli.schema import schema
from headgate.cli.snapshot import snapshot
from headgate.cli.state import state
from headgate.cli.status import status
from headgate.cli.up import up
from headgate.cli.validate import validate
from headgate.model import HeadgateError, InternalError

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

for command in (
    demo,
    init,
    validate,
    check,
    explain,
    run,
    bridge,
    gateway,
    snapshot,
    status,
    reload,
    up,
    reset,
    schema,
):
    app.command()(command)


for name, group in {
    "pipeline": pipeline,
    "dlq": dlq,
    "state": state,
    "replica": replica,
    "broker": broker,
    "eventlog": eventlog,
    "relay": relay,
}.items():
    app.add_typer(group, name=name)


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
        app()
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(130)
    except HeadgateError as error:
        _fail(error)
    except Exception as error:
        if _settings["debug"]:
            traceback.print_exc()
        _fail(InternalError(f"{type(error).__name__}: {error}", remedy="run again with: headgate --debug ..."))


def _fail(error: HeadgateError) -> None:
    if _settings["debug"]:
        traceback.print_exception(error)
    print_error(error)
    sys.exit(error.exit_code)
