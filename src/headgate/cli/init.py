"""`headgate init`: writes a commented configuration that runs as it is, or one for a purpose."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.output import note
from headgate.config import DEFAULT_FILE
from headgate.model import UsageError

__all__ = ["init"]


class Recipe(StrEnum):
    """The configurations that can be written, each a file of `headgate.config.recipes`."""

    DEFAULT = "default"
    TABLE_TOPIC = "table-topic"
    SHADOW = "shadow"


_EDITS = {Recipe.TABLE_TOPIC: "name your tables in it; ", Recipe.SHADOW: "name your brokers in it; "}


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = DEFAULT_FILE,
    recipe: Annotated[
        Recipe,
        typer.Option(
            help="default: made-up orders, to look around. table-topic: tables as compacted Kafka topics. "
            "shadow: topics mirrored to another Kafka."
        ),
    ] = Recipe.DEFAULT,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented headgate.toml that runs as it is, on the embedded servers.

    With --recipe one for a purpose, in which you name your own tables, or brokers.

    Example: headgate init && headgate run
    """
    if path.exists() and not force:
        raise UsageError("the file exists already", where=str(path), remedy="choose another name, or add --force")
    text = resources.files("headgate.config.recipes").joinpath(f"{recipe}.toml").read_text(encoding="utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write: {error.strerror}", where=str(path), remedy="choose a writable place") from None
    edit = _EDITS.get(recipe, "")
    note(f"wrote {path}; next: {edit}headgate validate, headgate check, headgate run")
