"""Runs the command line as a user would: in a directory of its own, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HEADGATE = str(Path(sys.executable).with_name("headgate"))


@dataclass
class Project:
    """A directory with a configuration, and the command line in it."""

    directory: Path

    def write(self, text: str, name: str = "headgate.toml") -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def run(self, *arguments: str, timeout_s: float = 120, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADGATE, *arguments],
            cwd=self.directory,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environ},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [HEADGATE, *arguments],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def status(self) -> dict[str, Any] | None:
        """What `/status` says, or None until it has started."""
        try:
            url = json.loads((self.directory / ".headgate/run/control.json").read_text())["url"]
            with urllib.request.urlopen(f"{url}/status", timeout=5) as response:
                answer: dict[str, Any] = json.load(response)
                return answer if answer["phase"] == "running" else None
        except (OSError, ValueError):
            return None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
