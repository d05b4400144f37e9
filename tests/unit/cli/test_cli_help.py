"""Help is shown as it was written: what looks like markup to the terminal would be left out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.markup import render

from headgate.cli import app as app_module
from headgate.cli.app import app


def texts(command: Any, path: str = "headgate") -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for parameter in command.params:
        yield f"{path} {parameter.name}", getattr(parameter, "help", None) or ""
    for name, child in getattr(command, "commands", {}).items():
        yield from texts(child, f"{path} {name}")


HELP = dict(texts(typer.main.get_command(app)))


def test_every_command_is_looked_at() -> None:
    assert {"headgate demo", "headgate gateway", "headgate gateway advertised", "headgate replica run"} <= HELP.keys()


@pytest.mark.parametrize("path", sorted(HELP))
def test_no_word_is_taken_for_markup(path: str) -> None:
    text = HELP[path].replace("\b", "")  # which keeps lines as they are
    assert render(text).plain == text


HEAVY = "{'pyspark', 'pandas', 'pyarrow', 'numba', 'numpy', 'confluent_kafka', 'starlette', 'psycopg'}"
LIGHT_CALLS = ["--version", "--help", "misspelt", "relay --help", "broker --help", "validate --help"]


def imported(call: str, but: str = "set()") -> subprocess.CompletedProcess[str]:
    script = (
        "import atexit, os, sys\n"
        f"sys.argv = ['headgate', *{call.split()!r}]\n"
        f"heavy = {HEAVY} - {but}\n"
        "def look():\n"
        "    if heavy & set(sys.modules):\n"
        "        print(heavy & set(sys.modules), file=sys.stderr, flush=True)\n"
        "        os._exit(99)\n"
        "atexit.register(look)\n"
        "from headgate.cli.app import main\n"
        "main()\n"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("call", LIGHT_CALLS)
def test_a_command_is_imported_without_the_others(call: str) -> None:
    """A relay that runs for months has no use for Spark's 180 MB, and nobody waits seconds for a version."""
    done = imported(call, "{'starlette', 'psycopg'}" if call == "broker --help" else "{'starlette'}")
    assert done.returncode == (2 if call == "misspelt" else 0), done.stderr


def test_the_list_of_commands_says_what_they_say() -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = {name: command.get_short_help_str(500) for name, command in commands.items()}
    assert shown == {**app_module._COMMANDS, **app_module._GROUPS}


def test_a_command_is_completed_with_its_own_options() -> None:
    asked = {"_HEADGATE_COMPLETE": "complete_bash", "COMP_WORDS": "headgate relay ru", "COMP_CWORD": "2"}
    script = "import sys; sys.argv = ['headgate']; from headgate.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["run"]
