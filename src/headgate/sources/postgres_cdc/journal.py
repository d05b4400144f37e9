"""A file of lines that grows at its end: what is learned is written once, and never written again with all the rest.

Its first line is a token that differs whenever the file was begun anew.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from headgate.runtime.files import sync_directory

__all__ = ["Journal", "JournalReader", "read_lines"]


class Journal:
    """The writer's side. A line is on disk after `sync`; half a line at the end, which a crash may leave, is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._is_dirty = False
        self.written_bytes = 0  # in all

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Begin the file anew with these lines; readers see the old one or the new one."""
        self.close()
        temporary = self._path.with_name(f".{self._path.name}")
        self._file = temporary.open("wb")
        self.append(secrets.token_hex(8).encode())
        for line in lines:
            self.append(line)
        self._is_dirty = True
        self.sync()
        temporary.replace(self._path)
        sync_directory(self._path.parent)  # or a power cut brings the old one back, without what is appended later

    def append(self, line: bytes) -> None:
        assert self._file is not None, "begin with rewrite"
        self.written_bytes += self._file.write(line + b"\n")
        self._is_dirty = True

    def sync(self) -> None:
        if self._is_dirty and self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._is_dirty = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class JournalReader:
    """Another process's side: reads what is new since the last time, or all of it when the file was begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = b""
        self._place = 0

    def read(self) -> tuple[bool, list[bytes]]:
        """Whether these lines are all there is, and the lines."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return False, []
        with file:
            token = file.readline()
            is_new = token != self._token
            if is_new:
                self._token, self._place = token, len(token)
            file.seek(self._place)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._place += end
        return is_new, data[:end].splitlines()


def read_lines(path: Path) -> list[bytes]:
    """All whole lines."""
    return JournalReader(path).read()[1]
