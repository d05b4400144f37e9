"""Stacks for tests of the embedded servers: one shared for looking at, and fresh directories for breaking."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.embedded import Endpoints, Stack


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A running stack that no test may break."""
    with Stack(tmp_path_factory.mktemp("shared"), nats_monitor_port=0) as endpoints:
        yield endpoints


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "stack"
