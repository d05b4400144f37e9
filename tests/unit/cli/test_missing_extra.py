"""A package that is not installed is one line, with the command that installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from headgate.model import extras

ROOT = Path(__file__).parents[3]


def called(command: str, without: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"import sys; sys.modules[{without!r}] = None; sys.argv = ['headgate', {command!r}, '--help']\n"
        "from headgate.cli import main; main()"
    )
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [("run", "pyspark", "spark"), ("relay", "libipld", "relay"), ("gateway", "numba", "gateway")],
)
def test_the_extra_is_named(command: str, package: str, extra: str) -> None:
    done = called(command, package)
    assert done.returncode == 4
    assert f"the package {package} is not installed" in done.stderr
    assert f"pip install 'headgate[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_module_that_is_missing_is_a_bug() -> None:
    assert extras.missing_extra(ModuleNotFoundError("no", name="headgate.nowhere")) is None


def test_every_extra_that_is_named_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras._EXTRAS.values(), *extras._OF_COMMANDS.values()} <= known.keys()
    assert {"spark", "gateway", "relay", "kafka", "embedded", "all"} <= known.keys()


def test_every_package_of_an_extra_is_in_the_lock() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lock = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    wanted = {re.split(r"[\[><=]", each)[0] for packages in known.values() for each in packages} - {"headgate"}
    assert wanted <= lock
