"""Output that goes to a pipe is whole: a script, or `grep`, has no width."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from rich.table import Table
from headgate.cli.output import data_console, note, print_fields
long = "x" * 300
table = Table("name", "value")
table.add_row("a", long)
data_console.print(table)
print_fields({"b": long})
note("c " + long)
"""


def test_nothing_is_cut_or_wrapped_in_a_pipe() -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if "x" * 300 in line]) == 3
    assert "…" not in done.stdout
