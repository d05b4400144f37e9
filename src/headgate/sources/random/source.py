"""The `random` source of a pipeline. Nothing is stored, so there is nothing to commit."""

from __future__ import annotations

from headgate.model.plugin import API_VERSION
from headgate.sources.base import POLLING, Mode, Offset, Source

__all__ = ["RandomSource"]


class RandomSource(Source):
    """Made-up orders."""

    api_version = API_VERSION
    format = "random"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        self.name = name
        self._options = options
        self._origin = origin

    def mode(self) -> Mode:
        return POLLING

    def options(self) -> dict[str, str]:
        return self._options

    def commit(self, end: Offset) -> None:
        """Rows are computed, not stored."""

    def origin(self) -> str:
        return self._origin

    def lag_rows(self, end: Offset, latest: Offset) -> int:
        return max(0, int(latest["row"]) - int(end["row"]))
