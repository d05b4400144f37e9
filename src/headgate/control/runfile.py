"""A small file in the data directory that says where the running service listens, so that the CLI finds it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

__all__ = ["RunFile"]


class RunFile:
    """Written by the service, read by `headgate status`."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "run" / "control.json"

    def write(self, url: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8")

    def read(self) -> str | None:
        """The URL of the running service; None when there is none, or when it died without saying so."""
        try:
            fields = json.loads(self._path.read_text(encoding="utf-8"))
            return str(fields["url"]) if psutil.pid_exists(int(fields["pid"])) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file if it is ours."""
        try:
            if json.loads(self._path.read_text(encoding="utf-8"))["pid"] == os.getpid():
                self._path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            return
