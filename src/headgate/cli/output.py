"""How commands speak: data on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from headgate.model import HeadgateError

__all__ = [
    "ConfigOption",
    "JsonOption",
    "data_console",
    "flat",
    "lag_text",
    "note",
    "note_console",
    "print_error",
    "print_fields",
    "print_json",
]


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


def print_fields(data: Mapping[str, Any]) -> None:
    """One thing for people: a line for every field, those of inner objects by their path."""
    fields = list(flat(data))
    width = max((len(name) for name, _ in fields), default=0)
    for name, value in fields:
        line = Text.assemble((f"{name:<{width}}  ", "cyan"), "-" if value is None else str(value))
        data_console.print(line, soft_wrap=True)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of an object with their dotted paths; a list of plain values is one field."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        for number, inner in enumerate(value):
            yield from flat(inner, f"{name}[{number}]")
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value))
    else:
        yield name, value if value != {} else None


def print_json(data: Any, *, sort_keys: bool = False) -> None:
    """Machine-readable output."""
    typer.echo(json.dumps(data, indent=2, default=str, sort_keys=sort_keys))


def lag_text(report: Mapping[str, Any]) -> str:
    """How far a pipeline is behind, in whatever its source can tell: `1,234 rows, 12 s`."""
    rows, size, seconds = (report.get(f"lag_{unit}") for unit in ("rows", "bytes", "seconds"))
    parts = [f"{rows:,} rows"] if rows is not None else []
    parts += [decimal(size)] if size is not None else []
    parts += [f"{seconds:,.0f} s"] if seconds is not None else []
    return ", ".join(parts) or "-"


def print_error(error: HeadgateError) -> None:
    """What happened, where, and what to do."""
    note_console.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
    if error.remedy:
        note_console.print(Text.assemble(("  try: ", "bold green"), error.remedy), soft_wrap=True)
