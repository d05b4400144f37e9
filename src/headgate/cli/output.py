"""How commands speak: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from headgate.model import HeadgateError

__all__ = ["ConfigOption", "JsonOption", "data_console", "note", "note_console", "print_error", "print_json"]


_UNCUT = 10_000


def _console(*, stderr: bool) -> Console:
    """Cuts nothing that does not go to a terminal: a pipe has no width."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNCUT
    return console


data_console = _console(stderr=False)
note_console = _console(stderr=True)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="HEADGATE_CONFIG", help="The configuration file.", show_default="headgate.toml"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def note(text: str) -> None:
    """A line for the person at the terminal."""
    note_console.print(text, style="dim", markup=False, soft_wrap=True)


def print_json(data: Any, *, sort_keys: bool = False) -> None:
    """Machine-readable output."""
    typer.echo(json.dumps(data, indent=2, default=str, sort_keys=sort_keys))


def print_error(error: HeadgateError) -> None:
    """What happened, where, and what to do."""
    note_console.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
    if error.remedy:
        note_console.print(Text.assemble(("  try: ", "bold green"), error.remedy), soft_wrap=True)
