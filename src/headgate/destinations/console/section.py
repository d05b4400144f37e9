"""The configuration of a `console` destination."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headgate.config.kinds import DestinationTable

__all__ = ["ConsoleDestinationSection"]


class ConsoleDestinationSection(DestinationTable):
    """Prints every row as one line on standard output."""

    type: Literal["console"]
    max_rows_per_batch: int = Field(1000, ge=1, description="More rows in one batch are counted, not printed.")
