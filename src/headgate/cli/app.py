"""Puts the commands together, and turns errors into one message, a remedy and an exit code.

Exit codes: 0 fine; 1 a check failed or nothing is running; 2 wrong usage; 3 wrong configuration; 4 something
cannot be reached or is missing; 5 data, state or delivery; 70 a bug in headgate; 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli.output import note, print_error
from headgate.model import HeadgateError, InternalError
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

_COMMANDS = (
    "demo",
    "init",
    "validate",
    "check",
    "explain",
    "run",
    "bridge",
    "gateway",
    "snapshot",
    "status",
    "reload",
    "up",
    "reset",
    "schema",
    "warm",
)
_GROUPS = ("pipeline", "dlq", "state", "replica", "broker", "eventlog", "relay")
_ELSEWHERE = {"reload": "pipeline"}  # commands that are not in a module of their own name


def _asked() -> str:
    """The command that the console script was called with; nothing where the commands are used by others."""
    if Path(sys.argv[0]).stem not in ("headgate", "__main__"):
        return ""
    return next((word for word in sys.argv[1:] if not word.startswith("-")), "")


def _add(name: str) -> None:
    found = getattr(import_module(f"headgate.cli.{_ELSEWHERE.get(name, name)}"), name)
    if name in _GROUPS:
        app.add_typer(found, name=name)
    else:
        app.command()(found)


def _add_commands(asked: str) -> None:
    """All commands, or the one that was asked for: a relay must not weigh what a pipeline weighs."""
    for name in [asked] if asked in (*_COMMANDS, *_GROUPS) else (*_COMMANDS, *_GROUPS):
        _add(name)


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
        app()
    except KeyboardInterrupt:
        note("interrupted")
        sys.exit(130)
    except HeadgateError as error:
        _fail(error)
    except Exception as error:
        known = disk_error(error) if isinstance(error, OSError) else None
        if known is not None:
            _fail(known)
        if _settings["debug"]:
            traceback.print_exc()
        _fail(InternalError(f"{type(error).__name__}: {error}", remedy="run again with: headgate --debug ..."))


def _fail(error: HeadgateError) -> None:
    if _settings["debug"]:
        traceback.print_exception(error)
    print_error(error)
    sys.exit(error.exit_code)
