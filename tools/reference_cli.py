"""The page of the command line: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from headgate.cli.app import app
from tools.tables import code, page, table

__all__ = ["cli_page", "commands"]

_VALUES = {"str": "TEXT", "int": "NUMBER", "integer": "NUMBER", "float": "NUMBER"}

_INTRODUCTION = """
Every command, as `headgate COMMAND --help` explains it. [The command line](../cli.md) has an overview and the exit
codes. `headgate --version` prints the version, `headgate --debug COMMAND` shows the traceback behind an error.
"""


def cli_page() -> str:
    """Return the page of every command."""
    parts = [_part(name, command) for name, command in commands()]
    return page("Command reference", "the commands of `headgate.cli`", _INTRODUCTION, *parts)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the full name and the object of every command, groups before what is in them."""
    yield from _below("headgate", typer.main.get_command(app))


def _below(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    for each, command in group.commands.items():
        yield f"{name} {each}", command
        if hasattr(command, "commands"):
            yield from _below(f"{name} {each}", command)


def _part(name: str, command: Any) -> str:
    title = f"## {code(name)}" if name.count(" ") == 1 else f"### {code(name)}"
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    options = table(["option", "value", "default", "meaning"], [_row(command, each) for each in shown])
    return f"{title}\n\n{_help(command.help or '')}\n\n{options}"


def _help(text: str) -> str:
    """Return the help. Examples are code, and so is a paragraph that is to stay as it is (`\\b`)."""
    return "\n\n".join(_paragraph(each) for each in text.split("\n\n"))


def _paragraph(text: str) -> str:
    if text.startswith("\b"):
        return "```text\n" + inspect.cleandoc(text[1:]) + "\n```"
    return re.sub(r"^Example: (.*)$", r"Example: `\1`", " ".join(text.split()))


def _row(command: Any, parameter: Any) -> list[str]:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    is_flag = getattr(parameter, "is_flag", False)
    value = "" if is_flag else parameter.metavar or _value(parameter.display_type(typer.Context(command)))
    environment = f" Also from the environment: {code(parameter.envvar)}." if parameter.envvar else ""
    return [", ".join(map(code, names)), code(value), _default(parameter), f"{parameter.help or ''}{environment}"]


def _value(shown: str) -> str:
    """Return what stands for the value of an option; choices stay as they are."""
    name = shown.strip("<>").removesuffix(" range")
    if shown == name:
        return shown
    one = name.removeprefix("list[").removesuffix("]")
    return _VALUES.get(one, one.upper()) + ("..." if one != name else "")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return "" if default in (None, False, "") or default == [] else code(str(default))
