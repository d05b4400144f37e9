"""The configuration of a `memory` destination."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.config.kinds import DestinationTable

__all__ = ["MemoryDestinationSection"]


class MemoryDestinationSection(DestinationTable):
    """Keeps the last rows in the process, for tests and for `headgate status`."""

    type: Literal["memory"]
    max_rows: int = Field(10_000, ge=1, description="Older rows are forgotten.")
