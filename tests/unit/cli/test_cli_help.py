"""Help is shown as it was written: what looks like markup to the terminal would be left out of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.markup import render

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


def test_a_command_is_imported_without_the_others() -> None:
    """A relay that runs for months has no use for Spark's 180 MB."""
    script = (
        "import sys\n"
        "sys.argv = ['headgate', '--debug', 'relay', 'run']\n"
        "from headgate.cli.app import app\n"
        "assert [group.name for group in app.registered_groups] == ['relay']\n"
        "heavy = {'pyspark', 'pyarrow', 'numba', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
