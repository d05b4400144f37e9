"""Spools that are closed when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.sources.postgres_cdc.spool import SpoolWriter


@pytest.fixture
def open_spool() -> Iterator[Callable[[Path], SpoolWriter]]:
    opened: list[SpoolWriter] = []

    def make(directory: Path) -> SpoolWriter:
        opened.append(SpoolWriter(directory))
        return opened[-1]

    yield make
    for writer in opened:
        writer.close()
