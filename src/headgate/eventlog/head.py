"""How far a log is durable, told to readers in every process through a page of memory they share.

Two numbers: the last sequence number that readers may see, and how often records were taken down. The page is a file
that is never synced: a new writer finds out by itself where the log ends. Each number is one aligned word of 64 bits,
which a processor stores and loads as a whole.
"""

from __future__ import annotations

import os
from mmap import PAGESIZE, PROT_READ, PROT_WRITE, mmap
from pathlib import Path

__all__ = ["Head"]


class Head:
    """The page of one log. A reader may come before the writer: until then everything is 0."""

    def __init__(self, path: Path, *, is_writer: bool = False) -> None:
        self._path = path
        self._is_writer = is_writer
        self._page: mmap | None = None
        self._words: memoryview | None = None
        if is_writer:
            self._map()

    @property
    def seq(self) -> int:
        return self._word(0)

    @property
    def scrubs(self) -> int:
        return self._word(1)

    def advance(self, seq: int) -> None:
        assert self._words is not None
        self._words[0] = seq

    def scrubbed(self) -> None:
        """Announce that records were scrubbed: readers must drop what they keep in memory."""
        assert self._words is not None
        self._words[1] += 1

    def close(self) -> None:
        if self._page is not None and self._words is not None:
            self._words.release()
            self._page.close()
        self._page = self._words = None

    def _word(self, number: int) -> int:
        if self._words is None and not self._map():
            return 0
        assert self._words is not None
        return int(self._words[number])

    def _map(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT if self._is_writer else os.O_RDONLY
        try:
            descriptor = os.open(self._path, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            return False
        try:
            if self._is_writer:
                # Before the page is mapped: a full disk is an error here, and a signal that kills in a mapped page.
                os.posix_fallocate(descriptor, 0, PAGESIZE)
            elif os.fstat(descriptor).st_size < PAGESIZE:
                return False
            access = PROT_READ | PROT_WRITE if self._is_writer else PROT_READ
            self._page = mmap(descriptor, PAGESIZE, prot=access)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._page).cast("Q")
        return True
