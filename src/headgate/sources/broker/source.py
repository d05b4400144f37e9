"""The `broker` source of a pipeline."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from headgate.model.plugin import API_VERSION
from headgate.sources.base import POLLING, Lag, Mode, Offset, Source
from headgate.sources.broker.group import BrokerGroup, StreamOffset
from headgate.sources.broker.options import BrokerSourceOptions

__all__ = ["BrokerSource"]


class BrokerSource(Source):
    """Events of a group, which the broker keeps until the group's cursor has passed them."""

    api_version = API_VERSION
    format = "pgbroker"

    def __init__(self, name: str, options: dict[str, str], origin: str) -> None:
        self.name = name
        self._texts = options
        self._options = BrokerSourceOptions.from_spark(options)
        self._group = BrokerGroup(self._options)
        self._origin = origin

    def mode(self) -> Mode:
        return POLLING

    def options(self) -> dict[str, str]:
        return self._texts

    def commit(self, end: Offset) -> None:
        self._group.commit(StreamOffset.from_spark(end))

    def stop(self) -> None:
        self._group.close()

    def origin(self) -> str:
        return self._origin

    def check(self) -> str:
        try:
            self._group.check()
        finally:
            self._group.close()
        return f"group {self._options.group} in the schema {self._options.schema}"

    def lag(self, end: Offset | None) -> Lag | None:
        """Positions are of all groups, so this is how much there is to look at."""
        if end is None:
            return None
        with closing(BrokerGroup(self._options)) as group:  # not that of `commit`, which another thread uses
            newest = group.newest()
        # Every partition of the log begins with a number of its own; what is left of the one before is not known.
        return Lag(rows=max(0, newest - max(StreamOffset.from_spark(end).pos, newest >> 32 << 32)))

    def describe(self) -> dict[str, Any]:
        wanted = self._options.subscribe or self._options.condition or "all events"
        return {"group": self._options.group, "events": wanted}
