"""What a release says of itself agrees: the version of the package, and the changes that are listed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from headgate import __version__

ROOT = Path(__file__).parents[3]


def test_the_version_of_the_package_is_that_of_the_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


def test_the_newest_changes_are_of_this_version_or_unreleased() -> None:
    first = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first in ("Unreleased", __version__)
