"""What most sources of headgate's own share: a name, the options of their Spark source, and rows that come again."""

from __future__ import annotations

from headgate.model.plugin import API_VERSION
from headgate.sources.base import POLLING, Mode, Source

__all__ = ["PolledSource"]


class PolledSource(Source):
    """A polling source that is made from the texts of its Spark options and the origin of its message ids."""

    api_version = API_VERSION

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        self.name = name
        self._texts = options
        self._origin = origin

    def mode(self) -> Mode:
        return POLLING

    def options(self) -> dict[str, str]:
        return self._texts

    def origin(self) -> str:
        return self._origin
