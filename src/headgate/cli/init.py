"""`headgate init`: writes a commented configuration that runs as it is."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import note
from headgate.config import DEFAULT_FILE
from headgate.model import UsageError

__all__ = ["init"]


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = DEFAULT_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented headgate.toml that runs as it is, on the embedded servers.

    Example: headgate init && headgate run
    """
    if path.exists() and not force:
        raise UsageError("the file exists already", where=str(path), remedy="choose another name, or add --force")
    text = resources.files("headgate.config").joinpath("template.toml").read_text(encoding="utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=str(path), remedy="choose a writable place") from None
    note(f"wrote {path}; next: headgate validate, headgate check, headgate run")
