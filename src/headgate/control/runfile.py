"""A small file in the data directory that says where the running service listens, so that the CLI finds it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from headgate.runtime.files import replace_file

__all__ = ["RunFile"]


class RunFile:
    """Written by the service, read by `headgate status`."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "run" / "control.json"
        self._is_ours = False

    def write(self, url: str) -> None:
        replace_file(self._path, json.dumps({"url": url, "pid": os.getpid()}).encode())
        self._is_ours = True

    def read(self) -> str | None:
        """The URL of the running service; None when there is none, or when it died without saying so."""
        try:
            fields = json.loads(self._path.read_text(encoding="utf-8"))
            return str(fields["url"]) if psutil.pid_exists(int(fields["pid"])) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        """Remove the file if this object wrote it."""
        if self._is_ours:
            self._is_ours = False
            self._path.unlink(missing_ok=True)
